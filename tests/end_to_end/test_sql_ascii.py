"""A database with encoding SQL_ASCII: a value that is not UTF-8 pauses its table, and no other."""

import json
import signal

import pytest

from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

FIRST, LATER, WHOLE, MASKED, FINE = TABLES = [
    TableId("public", name) for name in ("first", "later", "whole", "masked", "fine")
]
BAD = TABLES[:-1]
SQL_ASCII = "encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0"
SCHEMA = "".join(
    f"create table {t} (id int primary key, v text, w text);"
    f"insert into {t} select g, 'é' || g, 'secret' from generate_series(1, 30) g;"
    for t in TABLES
)
# Every table has good changes; those in BAD also a value that is not UTF-8.
GOOD = "".join(
    f"update {t} set v = v || '+' where id % 5 = 0 and id < 1000;"
    f"insert into {t} select max(id) + 1, 'é' from {t} where id < 1000;"
    for t in TABLES
)
MORE_BAD = "".join(f"insert into {t} select max(id) + 1, E'clear\\xff\\x80' from {t};" for t in BAD)
CORRECT = "".join(f"update {t} set v = 'corrected' where v like 'clear%';" for t in BAD)


def test_a_value_that_is_not_utf8_pauses_its_table_alone(pg, program, tmp_path):
    database = pg.database("sql_ascii", options=SQL_ASCII)

    def change(sql):
        pg.execute(database, sql.encode())

    def differing(tables):
        found = [one.table for one in difference(file, [table for table in tables if table != MASKED])]
        if MASKED in tables:
            with pg.connect(database, client_encoding="UTF8") as connection:
                source = connection.execute("select id, v, '****' from masked order by id").fetchall()
            lake = rows(lake_path(load(file), MASKED), "select id, v, w from t order by id")
            found += [] if source == [tuple(row.values()) for row in lake] else [MASKED]
        return found

    change(SCHEMA)
    change(f"alter table {WHOLE} replica identity full")
    change(f"update {FIRST} set v = E'clear\\xff' where id = 7")
    settings = {
        "schema.include.list": "public",
        "column.mask.with.4.chars": "public.masked.w",
        # Of the lower of two limits, so that slices are divided into parts as well.
        "wal2lake.slice.split.rows": "8",
        "provide.transaction.metadata": "true",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "ascii.properties", pg.properties(database, **settings))
    checked = program.run("check", file)
    assert "SQL_ASCII" in checked.stdout + checked.stderr

    def streamed(code):
        done = program.stream(file)
        assert done.returncode == code, done.stdout + done.stderr[-3000:]
        assert "Traceback" not in done.stderr and "clear" not in done.stdout + done.stderr, done.stderr
        return done

    # The first snapshot: the others are read and streamed; so does a snapshot of all tables, which says it in the end.
    assert f"{FIRST} is paused" in streamed(1).stderr
    paused = program.paused(file)
    assert list(paused) == [str(FIRST)] and differing(TABLES[1:]) == []
    assert f"Column v of {FIRST}" in paused[str(FIRST)]["reason"]
    assert f"wal2lake replay with {FIRST}" in paused[str(FIRST)]["remedy"]
    done = program.run("snapshot", file)
    assert done.returncode == 1 and f"Column v of {FIRST}" in done.stderr, done.stderr[-3000:]
    done = program.run("replay", file, str(FIRST))
    assert done.returncode == 1 and f"Column v of {FIRST}" in done.stderr, done.stderr[-3000:]
    assert differing(TABLES[1:]) == []

    # While down, also killed before and after the pause is stored; good changes before and after it.
    change(GOOD + MORE_BAD + GOOD)
    program.killed_at("before-confirm", file)
    for _ in range(2):
        streamed(1)
        assert differing([FINE]) == []
        paused = program.paused(file)
        assert set(paused) == {str(t) for t in BAD}
        assert all(f"Column v of {table}" in one["reason"] for table, one in paused.items())
        change(MORE_BAD)
        change(GOOD)

    # The remedy works at once, although the slot still sends what was written before the correction, and the old value
    # of a row with replica identity full.
    change(CORRECT)
    change(GOOD)
    for table in BAD:
        done = program.run("replay", file, str(table))
        assert done.returncode == 0, (table, done.stdout + done.stderr[-3000:])
    change(GOOD)
    streamed(0)
    assert differing(TABLES) == [] and program.paused(file) == {}

    # While streaming.
    with program.started("run", file, "--max-seconds", "1500") as running:
        change(GOOD)
        wait_until(lambda: differing(TABLES) == [], 60, "the changes in the lake")
        change(GOOD + MORE_BAD)
        wait_until(lambda: all(f"{table} is paused" in running.said() for table in BAD), 60, "the pauses")
        change(GOOD)
        wait_until(lambda: differing([FINE]) == [], 60, "the other's changes")
        assert running.end(signal.SIGINT) == 1, running.said()[-3000:]
    change(CORRECT)
    done = program.run("snapshot", file)  # the other remedy, of all tables at once
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    streamed(0)
    assert differing(TABLES) == [] and program.paused(file) == {}

    # Rows that cannot be read are counted as events: of MORE_BAD, twice, and of the last correction.
    ended = rows(tmp_path / "lake" / "test" / "__transactions", "select * from t where status = 'END'")
    each = [sorted(one["data_collections"], key=str) for one in ended if one["event_count"] == len(BAD)]
    assert each == [[{"data_collection": str(t), "event_count": 1} for t in sorted(BAD)]] * 3

    # Events are one stream: they end with an error.
    events = write_properties(
        tmp_path / "events.properties",
        pg.properties(database, **{**settings, "slot.name": "ascii_events", "topic.prefix": "events"}),
    )
    arguments = ("--output", str(tmp_path / "events.jsonl"), "--until-idle", "1")
    assert program.run("envelopes", events, *arguments).returncode == 0
    change(MORE_BAD)
    done = program.run("envelopes", events, *arguments)
    assert done.returncode == 1 and f"Column v of {FIRST}" in done.stderr, done.stderr[-3000:]


def test_a_snapshot_by_signal_skips_the_table(pg, program, tmp_path):
    database = pg.database("sql_ascii", options=SQL_ASCII)
    for table in (LATER, FINE):
        pg.execute(database, f"create table {table} (id int primary key, v text); insert into {table} values (1, 'v')")
    signals = tmp_path / "signals"
    settings = {"schema.include.list": "public", "signal.enabled.channels": "file", "signal.file": str(signals)}
    file = write_properties(
        tmp_path / "signals.properties", pg.properties(database, **{**settings, **lake_settings(tmp_path)})
    )
    with program.started("run", file, "--max-seconds", "1500") as running:
        wait_until(lambda: difference(file, [LATER, FINE]) == [], 60, "the snapshot in the lake")
        pg.execute(database, f"insert into {LATER} values (99, E'clear\\xff')")
        wait_until(lambda: f"{LATER} is paused" in running.said(), 60, "the pause")
        for kind, said in (
            ("incremental", "is skipped by the incremental"),
            ("blocking", "was not read by a blocking"),
        ):
            data = {"data-collections": [str(LATER), str(FINE)], "type": kind}
            signals.write_text(json.dumps({"id": kind, "type": "execute-snapshot", "data": data}) + "\n")
            wait_until(lambda said=said: f"{LATER} {said}" in running.said(), 60, kind)
            pg.execute(database, f"insert into {FINE} select max(id) + 1, 'new' from {FINE}")
            wait_until(lambda: difference(file, [FINE]) == [], 60, "the other's changes")
        assert running.end(signal.SIGINT) == 1, running.said()[-3000:]
        assert "Traceback" not in running.said() and "clear" not in running.said()
    pg.execute(database, f"update {LATER} set v = 'corrected' where id = 99")
    done = program.run("replay", file, str(LATER))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert program.stream(file).returncode == 0
    assert difference(file, [LATER, FINE]) == []
