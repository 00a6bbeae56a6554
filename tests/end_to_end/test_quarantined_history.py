"""A history table whose quarantined changes are replayed: what waits begins versions, what was superseded does not."""

import signal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from cdc_core import failpoints
from tests.end_to_end.test_quarantine import DOCS, Line
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


NOT_BEGUN = """
select c."__commit_lsn", c."after"['n'] as n from c left anti join t
on t."__valid_from_lsn" = c."__commit_lsn" and t."__tx_index" = c."__tx_index" where c."__op" in ('c', 'u')
"""


def test_what_waited_begins_versions_and_what_was_superseded_does_not(line):
    line.run()
    line.run(
        "update docs set n = -1 where id = 1",
        "update docs set note = 'held' where id = 1",  # without body: it needs the one before
        "update docs set n = -2 where id = 2",
        "update docs set n = -3 where id = 3",
        "update docs set n = 5, body = repeat('y', 3000) where id = 2",  # of the same round
    )
    assert len(line.waiting()) == 3
    line.run("update docs set n = 7, body = 'seven' where id = 3")
    assert (len(line.waiting()), statuses(line).count("superseded")) == (2, 1)
    killed = line.replay("--accept-all", WAL2LAKE_FAILPOINT=failpoints.AFTER_QUARANTINE)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr[-3000:]
    done = line.replay("--accept-all")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert is_current(line) and line.waiting() == []
    told = [(one[0], one[1], one[2]) for one in versions(line) if one[0] < 4]
    assert told == [
        *((1, 1, "first"), (1, -1, "first"), (1, -1, "held")),
        *((2, 2, "first"), (2, 5, "first")),
        *((3, 3, "first"), (3, 7, "first")),
    ]
    for key in (1, 2, 3):  # each ends where the next one begins
        mine = [one for one in versions(line) if one[0] == key]
        assert [one[-1] for one in mine] == [*(one[-2] for one in mine[1:]), None]
    # The changelog has what no version begins with.
    tables = {"t": str(lake_path(line.config, DOCS)), "c": str(changelog_path(line.config, DOCS))}
    query = QueryBuilder()
    for name, path in tables.items():
        query = query.register(name, DeltaTable(path))
    found = pa.table(query.execute(NOT_BEGUN).read_all()).to_pylist()
    assert sorted(row["n"] for row in found) == [-3, -2]
