"""Quarantine on a real server, through the command: what waits, what supersedes it, what a replay lets in."""

import json
import signal

import pytest

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, doubled_events, lake_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

DOCS, LATE = TableId("public", "docs"), TableId("public", "late")
SCHEMA = """
create table docs (id int primary key, n int, note text, body text);
alter table docs alter column body set storage external;
insert into docs select g, g, 'first', repeat('x', 3000) from generate_series(1, 3) g;
create type mood as enum ('sad', 'ok');
create table late (id int primary key, name varchar(20), mood mood);
insert into late values (1, 'one', 'ok');
"""
RULES = """
limits: {rows: 50}
rules:
  - name: positive
    condition: n >= 0
    description: n is not negative
  - name: short
    condition: length(note) < 100
    severity: warn
"""


def settings(folder):
    return {
        "schema.include.list": "public",
        **lake_settings(folder),
        "wal2lake.quality.rules.path": str(folder / "rules"),
    }


class Line:
    """A database, its connector, and what is in quarantine."""

    def __init__(self, pg, program, folder, name, **more):
        self.pg, self.program, self.database = pg, program, pg.database(name)
        pg.execute(self.database, SCHEMA)
        self.rules = folder / "rules"
        self.rules.mkdir()
        (self.rules / "public.docs.yaml").write_text(RULES)
        self.file = write_properties(folder / "q.properties", pg.properties(self.database, **settings(folder), **more))
        self.config = load(self.file)

    def run(self, *sql):
        for statement in sql:
            self.pg.execute(self.database, statement)
        done = self.program.stream(self.file)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return done

    def replay(self, *arguments, table=DOCS, **environment):
        return self.program.run("replay", self.file, str(table), *arguments, **environment)

    def aside(self, table=DOCS):
        path = lake_path(self.config, table).parents[1] / "__quarantine" / table.schema / table.table
        return rows(path, "select * from t order by __commit_lsn, __tx_index") if path.exists() else []

    def waiting(self, table=DOCS):
        return [(row["__op"], row["key"], row["reasons"]) for row in self.aside(table) if row["status"] == "waiting"]


@pytest.fixture
def line(pg, program, tmp_path):
    return lambda name, **more: Line(pg, program, tmp_path, name, **more)


def test_what_needs_a_refused_change_is_held_and_a_complete_one_supersedes_it(line):
    one = line("held")
    one.run()
    one.run(
        "update docs set n = -1 where id = 1",
        "update docs set n = 7 where id = 1",  # leaves body out: it needs the one before
        "update docs set n = -2 where id = 2",
        "update docs set n = 5, body = repeat('y', 3000) where id = 2",  # complete: the fix at the source
        "insert into docs values (9, -9, 'refused', 'b')",
        "delete from docs where id = 3",
    )
    assert one.waiting() == [
        ("u", '{"id":1}', ["user:positive"]),
        ("u", '{"id":1}', ["waits_for_earlier_change"]),
        ("c", '{"id":9}', ["user:positive"]),
    ]
    assert [row["reasons"] for row in one.aside() if row["status"] == "superseded"] == []
    assert rows(lake_path(one.config, DOCS), "select id, n from t order by id") == [
        {"id": 1, "n": 1},
        {"id": 2, "n": 5},
    ]
    # Over several rounds: a key that changes, a delete, and a key that is given anew.
    one.run("update docs set id = 10, n = 3, body = 'z' where id = 9")
    assert [row["status"] for row in one.aside()] == ["waiting", "waiting", "superseded"]
    one.run("delete from docs where id = 1", "insert into docs values (1, 1, 'anew', 'b')")
    assert one.waiting() == []
    assert difference(one.file, [DOCS]) == []
    assert one.replay().returncode == 0
    assert difference(one.file, [DOCS]) == []
    # By another key the lake's row is not the one that a refused change has left: the table is read again.
    one.run("update docs set n = -6 where id = 2", "alter table docs drop constraint docs_pkey, add primary key (n)")
    done = one.run("update docs set n = 8 where n = -6")
    assert "public.docs is re-read" in done.stdout + done.stderr
    assert difference(one.file, [DOCS]) == []


def test_a_replay_goes_in_once_wherever_it_is_killed(line):
    """At each of these places, in a table of its own."""
    one = line("replay")
    killed_at = {
        TableId("public", "docs_quarantine"): failpoints.AFTER_QUARANTINE,
        TableId("public", "docs_merge"): failpoints.DURING_MERGE,
        TableId("public", "docs_apply"): failpoints.AFTER_APPLY,
        TableId("public", "docs_record"): failpoints.BEFORE_ROUND_RECORD,
    }
    for table in killed_at:
        name = table.table
        one.pg.execute(
            one.database, f"create table {name} (like docs including all); insert into {name} select * from docs"
        )
        (one.rules / f"{table}.yaml").write_text(RULES)
    one.run()
    one.run(
        *(
            statement.format(table.table)
            for table in killed_at
            for statement in (
                "update {0} set n = -1 where id = 1",
                "update {0} set note = 'held' where id = 1",
                "insert into {0} values (4, -4, 'refused', 'b')",
                "update {0} set id = 5, n = -5 where id = 2",
                "update {0} set n = -3 where id = 3",
                "update {0} set n = 3, note = 'later', body = 'c' where id = 3",
            )
        )
    )
    for table, place in killed_at.items():
        assert len(one.waiting(table)) == 4
        (one.rules / f"{table}.yaml").write_text(RULES.replace("n >= 0", "n > -5"))
        killed = one.replay(table=table, WAL2LAKE_FAILPOINT=place)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr[-3000:]
        done = one.replay(table=table)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert one.waiting(table) == [("u", '{"id":5}', ["user:positive"])], place
        found = rows(lake_path(one.config, table), "select id, n, note, length(body) as l from t order by id")
        assert found == [
            {"id": 1, "n": -1, "note": "held", "l": 3000},
            {"id": 2, "n": 2, "note": "first", "l": 3000},
            {"id": 3, "n": 3, "note": "later", "l": 1},
            {"id": 4, "n": -4, "note": "refused", "l": 1},
        ], place
        assert one.replay("--accept", "positive", table=table).returncode == 0
        assert one.waiting(table) == [], place
        assert doubled_events(one.file, table) == 0, place
    assert difference(one.file, [*killed_at]) == []


def test_constraints_count_from_when_they_were_set(line):
    one = line("late")
    one.run()
    one.run(
        "insert into late values (2, null, 'sad'), (3, 'a longer name of 20.', 'ok')",
        "update late set name = 'two' where id = 2; update late set name = 'three' where id = 3",
        "alter table late alter column name set not null",
        "alter table late alter column name type varchar(8)",
        "alter type mood rename value 'sad' to 'blue'",
        "insert into late values (4, 'four', 'blue')",
    )
    assert one.waiting(LATE) == []
    assert difference(one.file, [LATE, DOCS]) == []


def test_a_limit_pauses_one_table_and_a_replay_resumes_it(line, tmp_path):
    one = line("limits", **{"wal2lake.quality.docs.path": str(tmp_path / "docs")})
    (one.rules / "public.docs.yaml").write_text(RULES.replace("rows: 50", "rows: 2"))
    one.run()
    bad = "insert into docs select g, -g, 'bad', 'b' from generate_series(10, 14) g;"
    one.pg.execute(one.database, f"{bad} insert into docs values (15, 15, 'good', 'b')")
    one.pg.execute(one.database, "insert into late values (5, 'five', 'ok')")
    done = one.program.stream(one.file)
    assert done.returncode == 1
    assert "public.docs is not merged: 5 changes of public.docs would be in quarantine" in done.stdout + done.stderr
    assert difference(one.file, [LATE]) == []
    assert len(rows(lake_path(one.config, DOCS))) == 3
    assert one.waiting() == []
    # What is discarded need not be let in first.
    done = one.replay("--drop")
    assert done.returncode == 0 and "5 dropped, 0 still waiting" in done.stderr, done.stderr
    assert [row["id"] for row in rows(lake_path(one.config, DOCS), "select id from t where id >= 10")] == [15]
    one.pg.execute(one.database, "insert into docs select g, -g, 'bad', 'b' from generate_series(20, 24) g")
    assert one.program.stream(one.file).returncode == 1
    (one.rules / "public.docs.yaml").write_text(RULES)
    done = one.replay()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(one.waiting()) == 5
    assert any("public.docs" in page.read_text() for page in (tmp_path / "docs").rglob("index.html"))
    done = one.replay("--drop")
    assert "5 dropped" in done.stdout + done.stderr
    assert {row["status"] for row in one.aside()} == {"dropped"}
    assert len(rows(lake_path(one.config, DOCS))) == 4


def test_a_share_is_of_many_changes_and_a_replay_is_a_decision(line):
    one = line("share")
    (one.rules / "public.docs.yaml").write_text(RULES.replace("rows: 50", "share: 0.002"))
    one.run()
    one.run("insert into docs values (9, -9, 'one of one', 'b')")
    assert len(one.waiting()) == 1
    one.pg.execute(one.database, "insert into docs select g, -g, 'bad', 'b' from generate_series(10, 14) g")
    done = one.program.stream(one.file)
    assert done.returncode == 1
    said = "5 of 5 changes of public.docs fail a rule (user:positive 5): more than limits.share of public.docs.yaml"
    assert said in done.stdout + done.stderr, done.stderr
    done = one.replay("--accept-all")
    assert done.returncode == 0, done.stdout + done.stderr
    assert one.waiting() == []
    assert difference(one.file, [DOCS]) == []


def test_a_running_stream_replays_resumes_and_reads_again_what_other_commands_ask(line):
    one = line("asked")
    one.run()
    with one.program.started("run", one.file, own_java=True) as running:
        running.wait_for("streaming")
        one.pg.execute(one.database, "insert into docs values (9, -9, 'refused', 'b'), (10, -10, 'refused', 'b')")
        wait_until(lambda: len(one.waiting()) == 2, 60, "changes in quarantine")
        done = one.replay("--accept", "positive")
        assert done.returncode == 0, done.stderr
        assert "2 changes replayed from quarantine, 0 dropped, 0 still waiting" in done.stderr
        assert difference(one.file, [DOCS]) == []
        one.pg.execute(one.database, "insert into docs select g, -g, 'bad', 'b' from generate_series(11, 99) g")
        running.wait_for("public.docs is paused")
        done = one.replay()
        assert done.returncode == 1 and "exceeds its limit of 50 rows" in done.stderr, done.stderr
        done = one.replay("--accept-all")
        assert done.returncode == 0 and "89 changes merged" in done.stderr, done.stderr
        assert difference(one.file, [DOCS]) == []
        one.pg.execute(one.database, "insert into docs values (1000, -1, 'dropped', 'b')")
        wait_until(lambda: len(one.waiting()) == 1, 60, "a change in quarantine")
        one.pg.execute(one.database, "insert into docs select g, -1, 'dropped', 'b' from generate_series(1001, 1060) g")
        running.wait_for("61 changes of public.docs would be in quarantine")
        done = one.replay("--drop")
        assert done.returncode == 0 and "61 dropped, 0 still waiting" in done.stderr, done.stderr
        # What was accepted is judged anew when it is read again.
        done = one.program.run("snapshot", one.file, "public.docs")
        assert done.returncode == 1 and "152 changes of public.docs would be in quarantine" in done.stderr, done.stderr
        (one.rules / "public.docs.yaml").write_text(RULES.replace("n >= 0", "n > -1000"))
        done = one.program.run("snapshot", one.file, "public.docs", "public.late")
        assert done.returncode == 0 and "public.docs: 155 rows as of" in done.stderr, done.stderr
        assert difference(one.file, [DOCS, LATE]) == []
        done = one.program.run("replay", one.file, "public.nothing")
        assert done.returncode == 1 and "Not a captured table: public.nothing." in done.stderr
        assert running.end(2) == 0, running.said()
    assert not list((one.file.parent / "state").glob("answer-*"))


def test_a_rule_that_does_not_end_pauses_its_table_and_the_others_continue(line):
    one = line("endless")
    one.run()
    endless = "(select count(*) from range(1000000) a, range(1000000) b) < id"
    (one.rules / "public.docs.yaml").write_text(RULES + f"  - name: endless\n    condition: {endless}\n")
    one.pg.execute(one.database, "insert into docs values (9, 9, 'never judged', 'b'); insert into late values (9)")
    done = one.program.stream(one.file)
    assert done.returncode == 1
    assert "Quality rule endless of public.docs took more than 10 s of CPU time" in done.stdout + done.stderr
    assert difference(one.file, [LATE]) == []
    assert one.waiting() == []
    (one.rules / "public.docs.yaml").write_text(RULES)
    done = one.replay()
    assert done.returncode == 0, done.stdout + done.stderr
    assert difference(one.file, [DOCS]) == []


def test_an_invalid_rule_file_is_reported_before_anything_starts(line):
    one = line("files")
    (one.rules / "public.docs.yaml").write_text(RULES + "  - name: wrong\n    condition: total > 0\n")
    for command in ("check", "run"):
        done = one.program.run(command, one.file, *(("--until-idle", "1") if command == "run" else ()))
        assert done.returncode != 0
        said = " ".join((done.stdout + done.stderr).split())
        assert "public.docs.yaml, line 11: rule wrong refers to total, which public.docs does not have." in said


def suite(line, *expectations):
    path = line.rules / "gx/expectations/public/docs.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"expectations": [{"kwargs": {}, **each} for each in expectations]}))


MEAN = {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "n", "min_value": 100}}
SAID = "mean_to_be_between:n on 2 rows, observed 8.5, expected min_value 100"


def test_great_expectations_decides_what_enters_the_lake(line):
    """A critical expectation on a slice stops its table, a warning does not; what raises never passes."""
    one = line("decides")
    one.run()
    suite(one, MEAN)
    said = one.program.run("check", one.file).stdout
    assert "no rows that snapshots read: mean_to_be_between:n of public.docs" in " ".join(said.split())
    for sql in (
        "insert into docs values (8, 8, 'a', 'b'), (9, 9, 'a', 'b')",
        "insert into late values (2, 'two', 'ok')",
    ):
        one.pg.execute(one.database, sql)
    done = one.program.stream(one.file)
    assert SAID in done.stdout + done.stderr and "--accept mean_to_be_between:n" in done.stdout + done.stderr
    content = "select id from t order by id"
    assert rows(lake_path(one.config, DOCS), content) == [{"id": n} for n in (1, 2, 3)]
    assert rows(lake_path(one.config, LATE), content) == [{"id": 1}, {"id": 2}]
    assert one.aside() == []
    assert SAID in " ".join(one.program.run("status", one.file).stdout.split())
    again = one.replay()
    assert again.returncode == 1 and SAID in again.stderr, again.stderr
    assert one.replay("--accept", "mean_to_be_between:n").returncode == 0
    assert difference(one.file, [DOCS, LATE]) == []

    suite(one, {**MEAN, "severity": "warning"})
    done = one.run("insert into docs values (10, 10, 'a', 'b')")
    assert "mean_to_be_between:n failed (warn): observed 10.0, expected min_value 100" in done.stdout + done.stderr
    assert difference(one.file, [DOCS, LATE]) == []

    suite(one, {"type": "expect_column_values_to_be_dateutil_parseable", "kwargs": {"column": "n"}})
    one.pg.execute(one.database, "insert into docs values (11, 11, 'a', 'b')")
    done = one.program.stream(one.file)
    told = "Expectation be_dateutil_parseable:n of public.docs could not be evaluated (MetricResolutionError)"
    assert told in done.stdout + done.stderr
    assert {"id": 11} not in rows(lake_path(one.config, DOCS), content)
    suite(one)
    assert one.replay().returncode == 0
    assert difference(one.file, [DOCS, LATE]) == []
