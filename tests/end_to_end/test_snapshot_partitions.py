"""Partitioned tables captured under their root's name: each leaf is read as ranges of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableId
from cdc_core.snapshot.copy.run import SnapshotRun
from tests.support.lake import difference, lake_path, rows, write_properties
from tests.support.spark import SETTINGS, test_session

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

EVENTS = TableId("public", "events")
# 4000 rows in events_1, 600 in each half of events_2 (partitioned again), 50 in attached, whose columns are in another
# order behind one that was dropped; events_4 is empty.
TABLES = """
create table events (id int, day int, note text, pad text, primary key (id, day)) partition by range (day);
create table events_1 partition of events for values from (0) to (10);
create table events_2 partition of events for values from (10) to (20) partition by range (day);
create table events_2a partition of events_2 for values from (10) to (15);
create table events_2b partition of events_2 for values from (15) to (20);
create table attached (gone int, pad text, note text, day int not null, id int not null, primary key (id, day));
alter table attached drop column gone;
alter table events attach partition attached for values from (20) to (30);
create table events_4 partition of events for values from (30) to (40);
insert into events select g, g % 10, 'n' || g, repeat('x', 200) from generate_series(1, 4000) g;
insert into events select g, 10 + g % 10, 'n' || g, repeat('y', 200) from generate_series(5001, 6200) g;
insert into events select g, 20, 'n' || g, 'z' from generate_series(7001, 7050) g;
"""
SELF_MADE = "create publication parted for table events {} with (publish_via_partition_root = true)"


def configured(pg, database: str, folder: Path, **more: str) -> Path:
    settings = {
        "table.include.list": "public.events",
        "publication.name": "parted",
        "publication.autocreate.mode": "disabled",
        "wal2lake.snapshot.rows.per.partition": "1000",
        "wal2lake.lake.path": str(folder / "lake"),
        "wal2lake.state.path": str(folder / "state"),
        **{f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()},
        **more,
    }
    return write_properties(folder / "parted.properties", pg.properties(database, **settings))


def filled(pg, row_filter: str = "") -> str:
    database = pg.database("parted")
    pg.execute(database, TABLES + SELF_MADE.format(row_filter))
    pg.execute(database, "vacuum analyze")
    return database


def snapshot(file: Path):
    """The report, and how many ranges there were."""
    reported = []
    (report,) = Connector.from_file(file).snapshot(spark=test_session(), on_progress=reported.append)
    (total,) = {progress.ranges_total for progress in reported}
    assert max(progress.ranges_done for progress in reported) == total
    assert max(progress.rows for progress in reported) == report.rows
    assert report.table == EVENTS
    return report, total


def test_large_leaves_are_read_by_pages_and_small_ones_together(pg, tmp_path):
    database = filled(pg)
    file = configured(pg, database, tmp_path)
    report, ranges = snapshot(file)
    assert report.rows == 5250
    # events_1 in four; attached with events_2a, events_2b with events_4.
    assert ranges == 6
    assert difference(file, [EVENTS]) == []
    found = rows(lake_path(Connector.from_file(file).config, EVENTS), "select * from t where id = 7007")
    assert [(row["day"], row["note"], row["pad"]) for row in found] == [(20, "n7007", "z")]
    # The stream goes on under the root's name.
    pg.execute(database, "update events set note = 'new' where id in (1, 5001, 7001); delete from events where id = 2")
    Connector.from_file(file).stream(Until(idle_seconds=1, max_seconds=1500), spark=test_session())
    assert difference(file, [EVENTS]) == []


def test_the_roots_row_filter_holds_for_leaves(pg, tmp_path):
    if pg.connect("postgres").info.server_version < 150000:
        pytest.skip("row filters came with PostgreSQL 15")
    file = configured(pg, filled(pg, "where (events.day <> 5 and id > 100)"), tmp_path)
    report, ranges = snapshot(file)
    assert ranges == 6
    found = rows(lake_path(Connector.from_file(file).config, EVENTS), "select id, day from t")
    made = [(g, g % 10) for g in range(1, 4001)] + [(g, 10 + g % 10) for g in range(5001, 6201)]
    made += [(g, 20) for g in range(7001, 7051)]
    assert sorted((row["id"], row["day"]) for row in found) == [one for one in made if one[1] != 5 and one[0] > 100]
    assert report.rows == len(found)


def test_without_a_privilege_on_one_leaf_the_root_is_read(pg, tmp_path):
    database = filled(pg)
    role = f"reader_{database}"
    pg.execute(
        database,
        f"create role {role} login replication password 'pw'; grant select on events to {role}; "
        f"grant select on events_1, events_2a, events_2b, events_4 to {role}",
    )
    user = {"database.user": role, "database.password": "pw"}
    try:
        file = configured(pg, database, tmp_path, **user)
        report, ranges = snapshot(file)
        assert (report.rows, ranges) == (5250, 1)
        assert difference(file, [EVENTS]) == []
        pg.execute(database, f"grant select (id, day, note, pad) on attached to {role}")
        report, ranges = snapshot(file)
        assert (report.rows, ranges) == (5250, 6)
        assert difference(file, [EVENTS]) == []
    finally:
        pg.execute(database, f"drop owned by {role}; drop role {role}")


def test_leaves_are_read_whole_on_a_server_without_tid_ranges(pg, tmp_path, monkeypatch):
    monkeypatch.setattr(Source, "server_version", 130_012)
    file = configured(pg, filled(pg), tmp_path)
    report, ranges = snapshot(file)
    assert report.rows == 5250
    # Small leaves that follow each other go together: events_2b with events_4.
    assert ranges == 4
    assert difference(file, [EVENTS]) == []


def test_a_leaf_that_takes_anothers_name_meanwhile_is_read_again(pg, tmp_path, monkeypatch):
    database = filled(pg)
    file = configured(pg, database, tmp_path)
    swapped, read = [], SnapshotRun._read

    def swapping(self, readings, *arguments, **named):
        if not swapped:
            swapped.append(True)
            pg.execute(
                database,
                "alter table events_2a rename to other; alter table events_2b rename to events_2a; "
                "alter table other rename to events_2b; alter table events_1 rename to moved",
            )
        return read(self, readings, *arguments, **named)

    monkeypatch.setattr(SnapshotRun, "_read", swapping)
    (report,) = Connector.from_file(file).snapshot(spark=test_session())
    assert swapped and report.rows == 5250
    assert difference(file, [EVENTS]) == []
