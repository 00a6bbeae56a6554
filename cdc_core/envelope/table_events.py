"""Converts row changes of one table version to Debezium's change events, all rows of a batch at once.

    raw, tuples ──plan──▶ the records of each row, with keys and rows as JSON ──render──▶ RECORDS
                             │ indexes in transactions, counted across tables ─────▲

The records of one message, in the order of ``sub``: an update that changes the key is a delete (0), its tombstone (1)
and a create (2); a delete is itself (0) and its tombstone (1); everything else is one record (0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode.pgoutput.stream_state import Truncate
from cdc_core.decode.raw_columns import RawColumns, TupleBatch
from cdc_core.envelope.context import EnvelopeContext, Plan
from cdc_core.envelope.json import TEXT, join
from cdc_core.envelope.key import key_columns
from cdc_core.envelope.record import RECORDS, records, schema_text
from cdc_core.envelope.row import RowWriter, filled_from, key_fields, rows_of, value_fields
from cdc_core.envelope.source_block import OPTIONAL_INT64, STRING, source_schema, source_texts
from cdc_core.envelope.transaction import CountedEvents, Orders, block_schema, block_texts
from cdc_core.schema.connect import ConnectSchema
from cdc_core.schema.table import TableSchema
from cdc_core.types.codec import ColumnCodec

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_CREATED, _CHANGED, _DELETED, _READ, _TRUNCATED = (ord(letter) for letter in "cudrt")


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """Facts of all rows of a snapshot: its LSN, its transaction's id (None on a standby) and its start.

    Rows that an incremental snapshot inserts into the stream contain neither LSN nor id, but the stream's position in
    ``source.sequence``: for them ``is_incremental``, ``xid`` None, ``ts_us`` the current time, and ``prior_end_lsn`` as
    in RAW_SCHEMA.
    """

    lsn: int
    xid: int | None
    ts_us: int
    prior_end_lsn: int = 0
    is_incremental: bool = False


@dataclass(frozen=True, slots=True)
class PlannedChanges:
    """The E records of a batch of N row messages, without tombstones.

    ``row[E]`` is the index of the message, ``sub[E]`` and ``op[E]`` (ASCII) are the record's; ``moved[E]`` marks the
    two records of a key change. The texts are per message: ``before[N]``, ``after[N]``, ``old_key[N]``, ``new_key[N]``,
    null if the server sent no such tuple; the keys are None for a table without a key.
    """

    raw: pa.RecordBatch
    row: np.ndarray
    sub: np.ndarray
    op: np.ndarray
    moved: np.ndarray
    before: pa.Array
    after: pa.Array
    old_key: pa.Array | None
    new_key: pa.Array | None

    def counted(self, collection: str) -> CountedEvents:
        """Return the records for the transaction counter."""
        seq, lsn = (self.raw.column(name).to_numpy()[self.row] for name in ("seq", "commit_lsn"))
        return CountedEvents(collection, seq, self.sub, lsn)


class TableEvents:
    """Creates the events of one table version; created once for it.

    ``codecs`` contains every column's codec, ``plans`` the selection's settings of columns (a column without one is
    unchanged). ``snapshot`` is true for rows that a snapshot reads.
    """

    def __init__(
        self,
        table: TableSchema,
        codecs: Mapping[str, ColumnCodec],
        context: EnvelopeContext,
        plans: Iterable[Plan] = (),
        *,
        snapshot: bool = False,
    ) -> None:
        self.table = table
        self.topic = context.names.topic(table.id)
        self._context = context
        failure = context.options.event_converting_failure_handling_mode
        by_name = {plan.name: plan for plan in plans}
        # For streaming, Debezium does not query the catalogue for an excluded column.
        unknown = frozenset(name for name, plan in by_name.items() if not plan.included and not snapshot)
        keys = key_fields(table, key_columns(table, context.schema.message_key_columns), codecs, context, unknown)
        self._key = RowWriter(table, keys, failure) if keys else None
        values = value_fields(table, codecs, by_name, context)
        self._value = RowWriter(table, values, failure)
        self._key_schema = schema_text(self._key_struct()) if self._key else "null"
        self._value_schema = schema_text(self._envelope())
        self._context_headers = context.context_headers()

    def _key_struct(self) -> ConnectSchema:
        assert self._key is not None
        return self._key.schema(self._context.names.schema_name(f"{self.topic}.Key"), optional=False)

    def _envelope(self) -> ConnectSchema:
        names = self._context.names
        row = self._value.schema(names.schema_name(f"{self.topic}.Value"), optional=True)
        return ConnectSchema(
            "struct",
            name=names.schema_name(f"{self.topic}.Envelope"),
            version=2,
            fields=(
                ("before", row),
                ("after", row),
                ("source", source_schema(names)),
                ("transaction", block_schema(names)),
                ("op", STRING),
                ("ts_ms", OPTIONAL_INT64),
                ("ts_us", OPTIONAL_INT64),
                ("ts_ns", OPTIONAL_INT64),
            ),
        )

    def plan(self, raw: pa.RecordBatch, tuples: TupleBatch) -> PlannedChanges:
        """Decide which records result from the messages and write their keys and rows.

        Shape:  raw[N] of RAW_SCHEMA and its decoded tuples → PlannedChanges over N messages.

        Raises: ConversionError for a value that cannot be read, if event.converting.failure.handling.mode is fail.
        """
        rows = raw.num_rows
        op, has_old = tuples.op, tuples.old_kind != 0
        at_new, at_old = np.flatnonzero(op != _DELETE), np.flatnonzero(has_old)
        new = filled_from(tuples.new, tuples.old) if has_old.any() else tuples.new
        new, old = _some(new, at_new, rows), _some(tuples.old, at_old, rows)
        after = _spread(self._value.write(new, rows=len(at_new)), at_new, rows)
        before = _spread(self._value.write(old, rows=len(at_old)), at_old, rows)
        new_key = old_key = None
        moved = np.zeros(rows, dtype=bool)
        if self._key is not None:
            new_key = _spread(self._key.write(new, rows=len(at_new)), at_new, rows)
            old_key = _spread(self._key.write(old, rows=len(at_old)), at_old, rows)
            moved = (op == _UPDATE) & _true(pc.not_equal(old_key, new_key))
        return self._planned(raw, op, moved, before=before, after=after, old_key=old_key, new_key=new_key)

    def _planned(
        self,
        raw: pa.RecordBatch,
        kinds: np.ndarray,
        moved: np.ndarray,
        *,
        before: pa.Array,
        after: pa.Array,
        old_key: pa.Array | None,
        new_key: pa.Array | None,
    ) -> PlannedChanges:
        first = np.select(
            [kinds == _INSERT, (kinds == _DELETE) | moved], [_CREATED, _DELETED], default=_CHANGED
        ).astype(np.uint8)
        again = np.flatnonzero(moved)
        row = np.concatenate([np.arange(len(kinds)), again])
        sub = np.concatenate([np.zeros(len(kinds), dtype=np.int64), np.full(len(again), 2, dtype=np.int64)])
        op = np.concatenate([first, np.full(len(again), _CREATED, dtype=np.uint8)])
        keep = ~np.isin(op, [ord(letter) for letter in self._context.skipped])
        if self._context.options.skip_messages_without_change:
            keep &= ~((op == _CHANGED) & _true(pc.equal(before, after))[row])
        row, sub, op = row[keep], sub[keep], op[keep]
        return PlannedChanges(raw, row, sub, op, moved[row], before, after, old_key, new_key)

    def render(self, planned: PlannedChanges, orders: Orders | None, now_ns: int, xmin: int | None = None) -> pa.Table:
        """Return the records of a plan, with their tombstones: RECORDS.

        ``orders``: the indexes of the plan's E records in their transactions, None without transaction metadata.
        ``now_ns``: when the events were created, nanoseconds since 1970-01-01T00:00:00Z.
        """
        raw, row, op = planned.raw, planned.row, planned.op
        if len(row) == 0:
            return RECORDS.empty_table()
        facts = raw if _is_all(row, raw.num_rows) else raw.drop_columns(["payload"]).take(pa.array(row))
        value = self._values(
            before="null" if (op == _CREATED).all() else _where(op != _CREATED, planned.before, row),
            after="null" if (op == _DELETED).all() else _where(op != _DELETED, planned.after, row),
            source=self._source(facts, xmin),
            transaction=block_texts(facts.column("xid"), facts.column("lsn"), orders),
            op=op,
            now_ns=now_ns,
        )
        key = self._keys(planned)
        headers = self._headers(planned)
        seq = facts.column("seq").to_numpy()
        made = records(seq, planned.sub, self.topic, key=key, value=value, headers=headers)
        dead = np.flatnonzero(op == _DELETED)
        if not len(dead) or not self._context.options.tombstones_on_delete:
            return made
        at = pa.array(dead)
        buried = records(
            seq[dead],
            planned.sub[dead] + 1,
            self.topic,
            key=None if key is None else key.take(at),
            value=None,
            headers=headers.take(at),
        )
        return pa.concat_tables([made, buried])

    def changes(
        self,
        raw: pa.RecordBatch,
        tuples: TupleBatch,
        now_ns: int,
        orders: Orders | None = None,
        xmin: int | None = None,
    ) -> pa.Table:
        """``plan`` and ``render`` in one call, without transaction metadata."""
        return self.render(self.plan(raw, tuples), orders, now_ns, xmin)

    def reads(
        self, columns: RawColumns, markers: pa.Array, facts: SnapshotFacts, now_ns: int, first_seq: int = 0
    ) -> pa.Table:
        """Return records of rows read by a snapshot: RECORDS, numbered from ``first_seq``.

        Shape:  columns of N rows, markers[N] (source.snapshot of each) → N records.
        """
        rows = len(markers)

        def constant(value: int | None) -> pa.Array:
            return pa.nulls(rows, pa.int64()) if value is None else pa.repeat(pa.scalar(value, pa.int64()), rows)

        source = source_texts(
            self._context,
            *self.table.id,
            ts_us=constant(facts.ts_us),
            lsn=constant(facts.lsn),
            prior_end_lsn=constant(facts.prior_end_lsn),
            xid=constant(facts.xid),
            origin=pa.nulls(rows, pa.string()),
            origin_lsn=constant(None),
            marker=markers,
            shows_lsn=not facts.is_incremental,
        )
        after = self._value.write(columns, rows=rows, read=True)
        value = self._values(
            before="null",
            after=after,
            source=source,
            transaction="null",
            op=np.full(rows, _READ, dtype=np.uint8),
            now_ns=now_ns,
        )
        key = None
        if self._key is not None:
            written = self._key.write(columns, rows=rows, read=True)
            key = join([f'{{"schema":{self._key_schema},"payload":', written, "}"], rows)
        seq = np.arange(first_seq, first_seq + rows)
        return records(
            seq, np.zeros(rows, dtype=np.int64), self.topic, key=key, value=value, headers=self._plain_headers(rows)
        )

    def truncates(
        self, truncate: Truncate, index: int, orders: Orders | None, now_ns: int, xmin: int | None = None
    ) -> pa.Table:
        """Return the record of a TRUNCATE of this table, the ``index``-th of the message; none if t is skipped."""
        if "t" in self._context.skipped:
            return RECORDS.empty_table()
        numbers = {
            name: pa.array([getattr(truncate, name)], type=pa.int64())
            for name in ("lsn", "prior_end_lsn", "xid", "origin_lsn")
        }
        source = source_texts(
            self._context,
            *self.table.id,
            ts_us=pa.array([truncate.commit_ts_us], type=pa.int64()),
            origin=pa.array([truncate.origin], type=pa.string()),
            xmin=xmin,
            **numbers,
        )
        value = self._values(
            before="null",
            after="null",
            source=source,
            transaction=block_texts(numbers["xid"], numbers["lsn"], orders),
            op=np.array([_TRUNCATED], dtype=np.uint8),
            now_ns=now_ns,
        )
        return records(
            np.array([truncate.seq]),
            np.array([index]),
            self.topic,
            key=None,
            value=value,
            headers=self._plain_headers(1),
        )

    def _values(
        self,
        *,
        before: pa.Array | str,
        after: pa.Array | str,
        source: pa.Array,
        transaction: pa.Array | str,
        op: np.ndarray,
        now_ns: int,
    ) -> pa.Array:
        letter: pa.Array | str = chr(op[0]) if (op == op[0]).all() else pa.array(op.view("S1").astype("U1"), type=TEXT)
        times = f'"ts_ms":{now_ns // 1_000_000},"ts_us":{now_ns // 1_000},"ts_ns":{now_ns}'
        return join(
            [
                *(f'{{"schema":{self._value_schema},"payload":{{"before":', before, ',"after":', after),
                *(',"source":', source, ',"transaction":', transaction, ',"op":"', letter, f'",{times}}}}}'),
            ],
            len(op),
        )

    def _source(self, facts: pa.RecordBatch, xmin: int | None) -> pa.Array:
        return source_texts(
            self._context,
            *self.table.id,
            ts_us=facts.column("commit_ts_us"),
            lsn=facts.column("lsn"),
            prior_end_lsn=facts.column("prior_end_lsn"),
            xid=facts.column("xid"),
            origin=facts.column("origin"),
            origin_lsn=facts.column("origin_lsn"),
            xmin=xmin,
        )

    def _keys(self, planned: PlannedChanges) -> pa.Array | None:
        if planned.new_key is None or planned.old_key is None:
            return None
        row, op = planned.row, planned.op
        payload = _where(op != _DELETED, planned.new_key, row)
        if (op == _DELETED).any():
            payload = pc.if_else(pa.array(op == _DELETED), planned.old_key.take(pa.array(row)), payload)
        return join([f'{{"schema":{self._key_schema},"payload":', payload, "}"], len(row))

    def _headers(self, planned: PlannedChanges) -> pa.Array:
        """Return the context headers; for the records of a key change, the other record's key is before them."""
        plain = self._plain_headers(len(planned.row))
        if not planned.moved.any() or planned.new_key is None or planned.old_key is None:
            return plain
        taken, deleted = pa.array(planned.row), pa.array(planned.op == _DELETED)
        other = pc.if_else(deleted, planned.new_key.take(taken), planned.old_key.take(taken))
        name = pc.if_else(deleted, pa.scalar("new", TEXT), pa.scalar("old", TEXT))
        rest = "," + self._context_headers if self._context_headers else ""
        moved = join(
            [
                '[{"key":"__debezium.',
                name,
                f'key","value":{{"schema":{self._key_schema},"payload":',
                other,
                f"}}}}{rest}]",
            ],
            len(planned.row),
        )
        return pc.if_else(pa.array(planned.moved), moved, plain)

    def _plain_headers(self, rows: int) -> pa.Array:
        return pa.repeat(pa.scalar(f"[{self._context_headers}]", TEXT), rows)


def _is_all(row: np.ndarray, rows: int) -> bool:
    return len(row) == rows and bool((row == np.arange(rows)).all())


def _some(columns: RawColumns, at: np.ndarray, rows: int) -> RawColumns:
    return columns if len(at) == rows else rows_of(columns, at)


def _spread(texts: pa.Array, at: np.ndarray, rows: int) -> pa.Array:
    """Return texts of the rows ``at`` as a column of all rows, null elsewhere."""
    if len(at) == rows:
        return texts
    place = np.full(rows, -1, dtype=np.int64)
    place[at] = np.arange(len(at))
    return texts.take(pa.array(place, mask=place < 0))


def _where(wanted: np.ndarray, texts: pa.Array, row: np.ndarray) -> pa.Array:
    """Return the text of each record's message if ``wanted``, else null."""
    if wanted.all() and _is_all(row, len(texts)):
        return texts
    return texts.take(pa.array(row, mask=~wanted))


def _true(mask: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
