"""What is read into the lake, in which order, under which locks: as the snapshot's options say."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from cdc_core.assemble import Connector
from cdc_core.errors import TransientError
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_path, rows, write_properties
from tests.support.spark import SETTINGS, test_session
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


def table(name: str) -> TableId:
    return TableId("public", name)


def configured(pg, database: str, folder: Path, **more: str) -> Path:
    settings = {
        "schema.include.list": "public",
        "wal2lake.lake.path": str(folder / "lake"),
        "wal2lake.state.path": str(folder / "state"),
        **{f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()},
        **more,
    }
    return write_properties(folder / "options.properties", pg.properties(database, **settings))


def test_chosen_tables_in_their_order_with_a_statement_of_ones_own(pg, tmp_path):
    database = pg.database("options")
    for name, count in (("a", 30), ("b", 10), ("c", 20), ("d", 5)):
        pg.execute(
            database,
            f"create table {name} (id int primary key, v text); "
            f"insert into {name} select g, 'v' || g from generate_series(1, {count}) g",
        )
    pg.execute(database, "vacuum analyze")
    statement = "snapshot.select.statement.overrides"
    file = configured(
        pg,
        database,
        tmp_path,
        **{
            "snapshot.include.collection.list": "public.(a|b|c)",
            statement: "public.a",
            f"{statement}.public.a": "select * from a where id <= 7;",
            "snapshot.tables.order.by.row.count": "ascending",
            "snapshot.delay.ms": "300",
            "wal2lake.snapshot.threads": "1",
        },
    )
    reported = []
    started = time.monotonic()
    reports = Connector.from_file(file).initial_snapshot(spark=test_session(), on_progress=reported.append)
    assert time.monotonic() - started > 0.3
    assert [(report.table, report.rows) for report in reports] == [(table("b"), 10), (table("c"), 20), (table("a"), 7)]
    begun = list(dict.fromkeys(progress.table for progress in reported))
    assert begun == [table("b"), table("c"), table("a")]
    assert {progress.table for progress in reported if progress.done} == set(begun)
    assert difference(file, [table("b"), table("c")]) == []


def test_a_large_table_reports_its_ranges_as_they_are_read(pg, tmp_path):
    database = pg.database("ranges")
    pg.execute(
        database,
        "create table large (id int primary key, pad text); "
        "insert into large select g, repeat('x', 200) from generate_series(1, 4000) g",
    )
    pg.execute(database, "vacuum analyze")
    more = {"wal2lake.snapshot.rows.per.partition": "1000", "snapshot.max.threads": "2"}
    file = configured(pg, database, tmp_path, **more)
    reported = []
    (report,) = Connector.from_file(file).snapshot(spark=test_session(), on_progress=reported.append)
    assert report.rows == 4000
    assert [progress.ranges_done for progress in reported] == [0, 1, 2, 3, 4, 4]
    assert {progress.ranges_total for progress in reported} == {4}
    assert [progress.done for progress in reported] == [False] * 5 + [True]
    counts = [progress.rows for progress in reported]
    assert counts == sorted(counts) and counts[0] == 0 and counts[4] == 4000 and 0 < counts[1] < 4000
    assert difference(file, [table("large")]) == []


def ranges_of(file: Path) -> dict[str, tuple[int, int]]:
    """Rows and ranges of each table that a snapshot reads."""
    reported = []
    reports = Connector.from_file(file).snapshot(spark=test_session(), on_progress=reported.append)
    ranges = {progress.table.table: progress.ranges_total for progress in reported}
    return {report.table.table: (report.rows, ranges[report.table.table]) for report in reports}


def test_an_older_server_is_asked_for_ranges_of_the_key(pg, tmp_path, monkeypatch):
    database = pg.database("older")
    rows_of = "select {}, repeat('x', 200) from generate_series(1, 4000) g"
    pg.execute(
        database,
        f"""
        create table large (id int primary key, pad text);
        insert into large {rows_of.format("g - 2000")};
        create table heir (extra int, primary key (id)) inherits (large);
        insert into heir {rows_of.format("g * 1000")};
        create table texts (id text primary key, pad text);
        insert into texts {rows_of.format("g")};
        create table mixed (id int primary key, pad text);
        insert into mixed {rows_of.format("g")} order by md5(g::text);
        create table mine (id int primary key, pad text);
        insert into mine {rows_of.format("g")};
        """,
    )
    pg.execute(database, "vacuum analyze")
    monkeypatch.setattr(Source, "server_version", 130_012)
    statement = "snapshot.select.statement.overrides"
    more = {
        "wal2lake.snapshot.rows.per.partition": "1000",
        statement: "public.mine",
        f"{statement}.public.mine": "select * from mine where id > 1000",
    }
    file = configured(pg, database, tmp_path, **more)
    found = ranges_of(file)
    whole = {"texts": (4000, 1), "mixed": (4000, 1), "mine": (3000, 1)}
    assert found == {"large": (4000, 4), "heir": (4000, 4), **whole}
    assert difference(file, [table(name) for name in ("heir", "texts", "mixed")]) == []
    # Not the heir's rows, which come under the heir's name.
    query = "select min(id) low, max(id) high, count(distinct id) ids from t"
    config = Connector.from_file(file).config
    assert rows(lake_path(config, table("large")), query) == [{"low": -1999, "high": 2000, "ids": 4000}]


def test_of_a_table_whose_columns_may_be_read_one_by_one_ranges_of_the_key_are_read(pg, tmp_path):
    database = pg.database("columns")
    role = f"reader_{database}"
    rows_of = "select {}, g, repeat('x', 200), 'secret' from generate_series(1, 4000) g"
    pg.execute(
        database,
        f"""
        create table keyed (id int primary key, v int, pad text, hidden text);
        insert into keyed {rows_of.format("g")};
        create table named (id text primary key, v int, pad text, hidden text);
        insert into named {rows_of.format("g")};
        create table whole (id int primary key, v int, pad text, hidden text);
        insert into whole {rows_of.format("g")};
        create role {role} login replication password 'pw';
        grant select (id, v, pad) on keyed, named to {role};
        grant select on whole to {role};
        create publication "{database}" for all tables;
        """,
    )
    pg.execute(database, "vacuum analyze")
    more = {
        "wal2lake.snapshot.rows.per.partition": "1000",
        "column.exclude.list": "public.(keyed|named).hidden",
        "database.user": role,
        "database.password": "pw",
    }
    try:
        file = configured(pg, database, tmp_path, **more)
        assert ranges_of(file) == {"keyed": (4000, 4), "named": (4000, 1), "whole": (4000, 4)}
        config = Connector.from_file(file).config
        for name in ("keyed", "named"):
            (found,) = rows(
                lake_path(config, table(name)), "select count(distinct id) ids, count(distinct v) vs, sum(v) s from t"
            )
            assert found == {"ids": 4000, "vs": 4000, "s": 4000 * 4001 // 2}
        assert difference(file, [table("whole")]) == []
    finally:
        pg.execute(database, f"drop owned by {role}; drop role {role}")


def test_a_lock_that_is_not_granted_ends_the_snapshot(pg, tmp_path):
    database = pg.database("locks")
    pg.execute(database, "create table held (id int primary key); insert into held values (1)")
    # The slot is there already: its creation would wait for the transaction too.
    file = configured(pg, database, tmp_path)
    Connector.from_file(file).snapshot(spark=test_session())
    more = {"snapshot.locking.mode": "shared", "snapshot.lock.timeout.ms": "300"}
    file = configured(pg, database, tmp_path, **more)
    with pg.connect(database) as connection:
        connection.execute("begin")
        connection.execute("select pg_current_xact_id()")
        connection.execute("lock table held in access exclusive mode")
        started = time.monotonic()
        with pytest.raises(TransientError) as caught:
            Connector.from_file(file).snapshot(spark=test_session())
        assert 0.3 <= time.monotonic() - started < patient(60)
        assert "lock" in caught.value.message.lower()
        connection.execute("rollback")
    (report,) = Connector.from_file(file).snapshot(spark=test_session())
    assert report.rows == 1


def test_partitions_heirs_views_and_foreign_tables(pg, tmp_path, caplog):
    database = pg.database("kinds")
    pg.execute(
        database,
        """
        create table events (id int, day int, primary key (id, day)) partition by range (day);
        create table events_1 partition of events for values from (0) to (10);
        create table events_2 partition of events for values from (10) to (20);
        insert into events select g, g % 20 from generate_series(1, 60) g;
        create table parent (id int primary key, v text);
        create table heir (extra int, primary key (id)) inherits (parent);
        insert into parent select g, 'p' from generate_series(1, 10) g;
        insert into heir select g, 'h', g from generate_series(11, 15) g;
        create view seen as select * from parent;
        create foreign data wrapper nowhere;
        create server elsewhere foreign data wrapper nowhere;
        create foreign table remote (id int) server elsewhere;
        """,
    )
    file = configured(pg, database, tmp_path)
    with caplog.at_level(logging.WARNING):
        reports = Connector.from_file(file).snapshot(spark=test_session())
    assert "remote is a foreign table" in caplog.text and "seen" not in caplog.text
    found = {report.table.table: report.rows for report in reports}
    assert (found["parent"], found["heir"]) == (10, 5)
    assert found.get("events", 0) + found.get("events_1", 0) + found.get("events_2", 0) == 60
    assert "remote" not in found and "seen" not in found
    config = Connector.from_file(file).config
    assert len(rows(lake_path(config, table("heir")))) == 5

    file = configured(pg, database, tmp_path, **{"table.include.list": "public.parent,public.seen"})
    with caplog.at_level(logging.WARNING):
        Connector.from_file(file).snapshot(spark=test_session())
    assert "table.include.list names public.seen, which is a view" in caplog.text
