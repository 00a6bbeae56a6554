"""A history table whose quarantined changes are replayed has the versions of the source."""

import signal

import pytest

from cdc_core import failpoints
from tests.delta.kept_model import KeptModel
from tests.end_to_end.test_quarantine import DOCS, RULES, Line
from tests.support.lake import changelog_path, lake_path, rows

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

IMAGE = ("id", "n", "note", "body")


def versions(line):
    """Each version: its values, the place where it begins and that where it ends."""
    found = []
    for row in rows(lake_path(line.config, DOCS)):
        ended = None if row["__valid_to_lsn"] is None else (row["__valid_to_lsn"], row["__valid_to_index"])
        assert row["__current"] is (ended is None) is (row["__valid_to"] is None)
        found.append((*(row[name] for name in IMAGE), (row["__valid_from_lsn"], row["__tx_index"]), ended))
    return sorted(found, key=lambda one: (one[0], one[-2]))


def versions_of_the_source(line, snapshot):
    """The same by the events of the changelog, all of which the source committed."""
    model = KeptModel(("id",))
    model.take([{name: one[n] for n, name in enumerate(IMAGE)} for one in snapshot], (*snapshot[0][-2], None))
    events = rows(changelog_path(line.config, DOCS), "select * from t order by __commit_lsn, __tx_index")
    for event in events:
        sides = {side: event[side] and {name: event[side][name] for name in IMAGE} for side in ("before", "after")}
        model.apply({**event, **sides})
    made = [
        (*(v.values[name] for name in IMAGE), v.began[:2], None if v.ended is None else v.ended[:2])
        for v in model.versions
    ]
    return sorted(made, key=lambda one: (one[0], one[-2]))


def is_current(line):
    """Whether the current versions are the source's rows."""
    source = line.pg.execute(line.database, "select id, n, note, body from docs order by id")
    return [tuple(row) for row in source] == [one[:4] for one in versions(line) if one[-1] is None]


def statuses(line):
    return [row["status"] for row in line.aside()]


@pytest.fixture
def line(pg, program, tmp_path):
    made = Line(pg, program, tmp_path, "past", **{"wal2lake.lake.delete.mode.history": "public.docs"})
    yield made
    pg.drop_database(made.database)


def test_replayed_changes_are_versions_between_those_that_the_lake_has(line):
    line.run()
    snapshot = versions(line)
    line.run(
        "update docs set n = -1 where id = 1",
        "update docs set note = 'held' where id = 1",  # without body: it needs the one before
        "insert into docs values (9, -9, 'refused', 'b')",
        "update docs set n = -2 where id = 2",
        "update docs set n = 5, body = repeat('y', 3000) where id = 2",  # of the same round
        "update docs set id = 7, n = -7 where id = 3",
    )
    assert [row["status"] for row in line.aside() if row["key"] == '{"id":2}'] == ["superseded"]
    assert len(line.waiting()) == 4
    line.run(
        "update docs set n = 1, body = repeat('z', 3000) where id = 1",
        "delete from docs where id = 9",  # leaves no version
        "insert into docs values (9, 99, 'again', 'c')",
        "update docs set n = 7, body = 'seven' where id = 7",
    )
    assert line.waiting() == []
    assert is_current(line)
    (line.rules / "public.docs.yaml").write_text(RULES.replace("n >= 0", "n > -5"))
    killed = line.replay(WAL2LAKE_FAILPOINT=failpoints.AFTER_QUARANTINE)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr[-3000:]
    done = line.replay()
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert sorted(statuses(line)) == ["replayed"] * 3 + ["superseded"] * 2
    assert [one[:3] for one in versions(line) if one[0] == 1] == [
        (1, 1, "first"),
        (1, -1, "first"),
        (1, -1, "held"),
        (1, 1, "held"),
    ]
    done = line.replay("--accept-all")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert set(statuses(line)) == {"replayed"}
    assert versions(line) == versions_of_the_source(line, snapshot)
    assert is_current(line)
