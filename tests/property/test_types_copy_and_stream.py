"""Every type through both roads, COPY and stream, on both servers, with PostgreSQL saying what each value means.

The seed is printed; ``WAL2LAKE_SEED`` repeats a run and ``WAL2LAKE_SECONDS`` is the budget for one server
(by default none: the rows of the first draw).
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_core.decode.copy_text import decode_copy
from cdc_core.decode.pgoutput import RelationRun, StreamState, decode_rows, sort_segment
from cdc_core.decode.raw_columns import RawColumns, TupleBatch
from cdc_core.lake.rows.change_rows import RESCUED, RowTyper
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect, connection_string
from cdc_core.postgres.replication import publication, slot
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.rows.copy_out import SnapshotHolder, copy_chunks, select_sql
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import FailureHandlingMode
from cdc_core.types.registry import resolve, rule_for
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import wait_until
from tests.unit.types.modes import MODES
from tests.unit.types.samples import SAMPLES
from tests.unit.types.source_table import Meaning, SourceTable, same

pytestmark = pytest.mark.postgres

SECONDS = float(os.environ.get("WAL2LAKE_SECONDS", "4" if sampling.explores() else "0"))
SEED = sampling.seed(2611)
TABLE = TableId("public", "every_type")


@dataclass(frozen=True)
class CopyAndStream:
    """The same rows by both roads, in the order of their ids."""

    source: SourceTable
    table: TableSchema
    copied: RawColumns
    raw: pa.RecordBatch
    streamed: TupleBatch

    @property
    def deleted(self) -> TupleBatch:
        """The streamed texts as the whole old rows of deletes."""
        new, none = self.streamed.new, tuple(pa.nulls(len(text), pa.string()) for text in self.streamed.new.text)
        kind = np.full_like(self.streamed.op, ord("D")), np.full_like(self.streamed.old_kind, ord("O"))
        return TupleBatch(*kind, new=dataclasses.replace(new, text=none), old=new)

    @property
    def typer(self) -> RowTyper:
        """One that stops at text which no server writes: whatever a real one sent must pass."""
        return TypingPlan(MODES[0], SelectionOptions(), FailureHandlingMode.FAIL).typer(self.table)


@pytest.fixture(scope="module")
def rows(each_pg: Cluster) -> Iterator[CopyAndStream]:
    """Rows are drawn once, and again until the budget is spent. They are read by the project's own connections."""
    database = each_pg.database("roads")
    source = SourceTable.make(each_pg, database)
    options = options_for(each_pg, database)
    try:
        with connect(options) as connection, connect(options, replication=True) as replication:
            publication.ensure(connection, options, [TABLE], ())
            slot.create(replication, options.slot_name)
        print(f"WAL2LAKE_SEED={SEED}")
        rows: list[tuple[str | None, ...]] = []
        seed, end = SEED, time.monotonic() + SECONDS
        while time.monotonic() < end or not rows:
            rows += source.draw(60, seed)
            seed += 1000
        source.insert(rows, 0)
        with SnapshotHolder(connect(options)) as holder:
            (table,) = Catalog(holder.connection).tables(lambda one: one == TABLE)
            names = tuple(column.name for column in table.columns)
            sql = select_sql(TABLE, names)
            data = b"".join(copy_chunks(connection_string(options), holder.name, sql))
            copied = by_id(decode_copy(data, names, str(TABLE)))
        state, runs = StreamState(), list[RelationRun]()
        with ReplicationStream(options) as stream:

            def has_all() -> bool:
                segment = stream.read(10**6, 1 << 28, 0.2)  # a read takes all of its time
                runs.extend(sort_segment(segment, state, lambda relation, xid: table).runs if segment else ())
                return sum(run.raw.num_rows for run in runs) >= len(rows)

            wait_until(has_all, 30, "the stream's rows")
        raw = pa.Table.from_batches([run.raw for run in runs]).combine_chunks().to_batches()[0]
        yield CopyAndStream(source, table, copied, raw, decode_rows(raw, runs[0].relation))
    finally:
        each_pg.drop_database(database)


def by_id(copied: RawColumns) -> RawColumns:
    """The rows by their ids: the server reads them by place, and puts small rows into the gaps that large ones left."""
    numbers = pc.cast(copied.text[copied.names.index("id")], pa.int64())
    order = pc.sort_indices(numbers)
    return dataclasses.replace(copied, text=tuple(text.take(order) for text in copied.text))


def test_copy_and_stream_bring_the_same_texts(rows: CopyAndStream) -> None:
    assert len(rows.copied) == len(rows.streamed.new) > 50
    for name, by_copy, by_stream in zip(rows.copied.names, rows.copied.text, rows.streamed.new.text, strict=True):
        assert by_copy.equals(by_stream), f"{name}, seed {SEED}"


def test_the_lake_holds_what_the_source_means(rows: CopyAndStream) -> None:
    after = rows.typer.changes(rows.raw, rows.streamed).column("after")
    before = rows.typer.changes(rows.raw, rows.deleted).column("before")
    images = [pa.RecordBatch.from_struct_array(image) for image in (after, before)]
    lakes = [pa.Table.from_batches([batch]) for batch in (rows.typer.reads(rows.copied, 1, 1), *images)]
    for name in rows.source.cases:
        meanings = rows.source.meanings(name)
        for lake in lakes:
            lake_holds_what_the_source_means(rows.source.column(name), meanings, lake)


def lake_holds_what_the_source_means(column: str, meanings: dict[int, Meaning], lake: pa.Table) -> None:
    assert lake.num_rows == len(meanings)
    rescued = [dict(entries or ()) for entries in lake[RESCUED].to_pylist()]
    for row, found, texts in zip(lake["id"].to_pylist(), lake[column].to_pylist(), rescued, strict=True):
        meant = meanings[row]
        assert same(found, meant.value), f"row {row}, seed {SEED}: {found!r} for {meant}"
        assert texts.get(column) == (meant.text if meant.is_rescued else None), f"row {row}, seed {SEED}"


def test_events_are_the_same_by_copy_and_stream(rows: CopyAndStream) -> None:
    """In every mode; where Debezium's own roads differ (dates), only that the codec says so."""
    for name in rows.source.cases:
        events_are_the_same_by_copy_and_stream(rows, name)


def events_are_the_same_by_copy_and_stream(rows: CopyAndStream, name: str) -> None:
    column = rows.source.column(name)
    place = rows.copied.names.index(column)
    for mode in MODES:
        event = resolve(rows.table.column(column), mode).event
        if event is None:
            continue
        read = event.snapshot_convert or event.convert
        by_copy, by_stream = read(rows.copied.text[place]), event.convert(rows.streamed.new.text[place])
        if event.snapshot_convert is not None:
            assert name == "date"
            text = rows.copied.text[place].to_pylist()
            usual = np.array(
                [value is None or ("1582-10-15" <= value <= "9999-12-31" and len(value) == 10) for value in text]
            )
            by_copy, by_stream = (type(some)(some.values.filter(pa.array(usual))) for some in (by_copy, by_stream))
        assert repr(by_copy.values.to_pylist()) == repr(by_stream.values.to_pylist()), f"seed {SEED}"


def test_the_catalogue_selects_the_rule_of_the_case(rows: CopyAndStream) -> None:
    for name, sample in SAMPLES.items():
        if name in rows.source.cases:
            rule = rule_for(rows.table.column(rows.source.column(name)))
            assert name.partition("(")[0] in (rule.names or (rule.label,)), sample
