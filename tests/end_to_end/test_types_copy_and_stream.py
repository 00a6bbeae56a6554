"""Every type from PostgreSQL to Delta by both roads, and back by delta-rs: each value is what the source says it is.

Half of a table's rows are there before the snapshot, the same ones again come by the stream; then every row is updated
beside its TOAST values, so that what the stream does not send must be found in the lake, rescued texts among it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.assemble import Connector
from cdc_core.engine.reports import Until
from cdc_core.reconcile.reports import ReconcileReport
from cdc_core.schema.table import TableId
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import lake_path, lake_settings, query, write_properties
from tests.support.spark import SETTINGS, test_session
from tests.unit.types.cases import ALL
from tests.unit.types.source_table import SourceTable, same

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROWS = int(os.environ.get("WAL2LAKE_ROWS", "40"))
SEED = sampling.seed(2611)
EVERY, TOAST = TableId("public", "every_type"), TableId("public", "toast")
# On the second server, what the first lacks and some that its version might print otherwise.
SECOND = {"vector", "halfvec", "sparsevec", "multirange", "numeric", "float8", "timestamptz", "interval", "text[]"}
STREAMED = 100_000  # ids of the rows that came by the stream

# Values of some kilobytes that do not compress, out of line; more[] has two dimensions and huge is past every decimal.
TOAST_TABLE = """
create table toast (id int primary key, marker int, note text, huge numeric, more text[], days date[], bytes bytea);
alter table toast alter note set storage external, alter huge set storage external, alter more set storage external,
    alter days set storage external, alter bytes set storage external;
"""
TOAST_ROWS = """
insert into toast select {first} + n, 0, repeat('long ' || n, 2000), repeat('123456789' || n, 2000)::numeric,
    array[[repeat('m' || n, 3000), 'x'], ['y', 'z']], array_fill('infinity'::date, array[3000]),
    decode(repeat(lpad(to_hex(n), 2, '0'), 5000), 'hex')
from generate_series(1, 5) as n
"""


@dataclass(frozen=True)
class Lake:
    """What delta-rs reads. ``toast`` rows are (lake row, source row as text) by id. ``compared`` is by reconcile."""

    source: SourceTable
    rows: dict[int, dict[str, Any]]
    toast: dict[int, tuple[dict[str, Any], dict[str, Any]]]
    compared: ReconcileReport


@pytest.fixture(scope="module")
def lake(each_pg: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    print(f"WAL2LAKE_SEED={SEED}")
    folder: Path = tmp_path_factory.mktemp("types")
    database = each_pg.database("every")
    source = SourceTable.make(each_pg, database, SECOND if each_pg.flavour == "embedded18" else ALL)
    drawn = source.draw(ROWS, SEED)
    source.insert(drawn, 0)
    each_pg.execute(database, TOAST_TABLE + ";" + TOAST_ROWS.format(first=0))
    properties = each_pg.properties(
        database,
        **{
            "publication.autocreate.mode": "filtered",
            "table.include.list": "public.every_type,public.toast",
            **lake_settings(folder),
            **{f"wal2lake.spark.{name}": value for name, value in SETTINGS.items()},
        },
    )
    connector = Connector.from_file(write_properties(folder / "every.properties", properties))
    spark = test_session()
    try:
        connector.snapshot(spark=spark)
        source.insert(drawn, STREAMED)
        each_pg.execute(database, TOAST_ROWS.format(first=STREAMED))
        connector.stream(Until(idle_seconds=1.5, max_seconds=1500), spark=spark)
        # The stream sends neither a row's TOAST values here nor that it once rescued some of them.
        each_pg.execute(database, "update every_type set marker = id; update toast set marker = id")
        connector.stream(Until(idle_seconds=1.5, max_seconds=1500), spark=spark)
        with source.plain() as connection:
            names = ("id", "marker", "note", "huge", "more", "days", "bytes")
            found = connection.execute(f"select {', '.join(f'{name}::text' for name in names)} from toast").fetchall()
        texts = {int(row[0]): dict(zip(names, row, strict=True)) for row in found}
        held = {row["id"]: row for row in _read(connector, TOAST)}
        assert held.keys() == texts.keys()
        rows = {row["id"]: row for row in _read(connector, EVERY)}
        yield Lake(source, rows, {row: (held[row], texts[row]) for row in held}, connector.reconcile())
    finally:
        each_pg.drop_database(database)


def _read(connector: Connector, table: TableId) -> list[dict[str, Any]]:
    read: pa.Table = query(lake_path(connector.config, table), "select * from t")
    return [{**row, "__rescued": dict(row["__rescued"] or ())} for row in read.to_pylist()]


def test_every_value_is_the_source_s_own(lake: Lake) -> None:
    for name in lake.source.cases:
        values_are_the_source_s_own(lake, name)


def values_are_the_source_s_own(lake: Lake, name: str) -> None:
    column, meanings = lake.source.column(name), lake.source.meanings(name)
    assert lake.rows.keys() == meanings.keys()
    for number, meant in meanings.items():
        row = lake.rows[number]
        assert same(row[column], meant.value), f"row {number}, seed {SEED}: {row[column]!r} for {meant}"
        assert row["__rescued"].get(column) == (meant.text if meant.is_rescued else None), f"row {number}, seed {SEED}"


def test_reconcile_finds_every_value_equal(lake: Lake) -> None:
    found = {str(each.table): each.to_plain() for each in lake.compared.tables}
    assert {name: (each["state"], each["reason"]) for name, each in found.items()} == {
        "public.every_type": ("equal", None),
        "public.toast": ("equal", None),
    }
    assert found["public.every_type"]["rows"] == 2 * ROWS
    assert {(each["changelog"]["state"], each["changelog"]["reason"]) for each in found.values()} == {("equal", None)}


def test_copy_and_stream_brought_the_same_rows(lake: Lake) -> None:
    told_apart = {"id", "marker", "__commit_lsn", "__tx_index", "__commit_ts"}
    assert len(lake.rows) == 2 * ROWS
    for number in range(ROWS):
        read, streamed = lake.rows[number], lake.rows[number + STREAMED]
        assert (read["marker"], streamed["marker"]) == (number, number + STREAMED)
        for column in read.keys() - told_apart:
            assert repr(read[column]) == repr(streamed[column]), f"{column} of row {number}, seed {SEED}"


def test_values_that_the_stream_did_not_send_again_are_still_there(lake: Lake) -> None:
    assert len(lake.toast) == 10
    for number, (held, text) in lake.toast.items():
        assert held["marker"] == number
        assert held["note"] == text["note"]
        assert held["bytes"] == bytes.fromhex(text["bytes"][2:])
        assert held["huge"] is held["more"] is held["days"] is None
        assert held["__rescued"] == {name: text[name] for name in ("huge", "more", "days")}
