"""Converts row changes of one table version to Debezium's change events, all rows of a batch at once.

    raw, tuples ──plan──▶ the records of each row, with keys and rows as JSON ──render──▶ RECORDS
                             │ indexes in transactions, counted across tables ─────▲

The records of one message, in the order of ``sub``: an update that changes the key is a delete (0), its tombstone (1)
and a create (2); a delete is itself (0) and its tombstone (1); everything else is one record (0).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.decode import RawColumns, Truncate, TupleBatch
from cdc_core.events.envelope.context import EnvelopeContext, Plan
from cdc_core.events.envelope.record import RECORDS
from cdc_core.events.envelope.row import RowWriter, constant_field, filled_from, key_fields, rows_of, value_fields
from cdc_core.events.envelope.source_block import OPTIONAL_INT64, STRING, SourceFacts, source_schema
from cdc_core.events.envelope.text_form import TextForm
from cdc_core.events.envelope.transaction import CountedEvents, EventNumbers, block_schema
from cdc_core.events.envelope.typed_form import TypedForm
from cdc_core.schema import ConnectSchema, TableSchema
from cdc_core.selection import key_columns
from cdc_core.types import ColumnCodec

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_CREATED, _CHANGED, _DELETED, _READ, _TRUNCATED = (ord(letter) for letter in "cudrt")


@dataclass(frozen=True, slots=True)
class EventSnapshot:
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
        if context.routing is not None and context.routing.field is not None:
            keys = (*keys, constant_field(context.routing.field, context.routing.identity(context.names, table.id)))
        self._key = RowWriter(table, keys, failure) if keys else None
        self._value = RowWriter(table, value_fields(table, codecs, by_name, context), failure)
        self._row = self._value.schema(context.names.schema_name(f"{self.topic}.Value"), optional=True)
        key_name = context.names.schema_name(f"{self.topic}.Key")
        self._key_struct = self._key.schema(key_name, optional=False) if self._key else None
        self._form: TextForm | TypedForm = (
            TextForm(context, self.topic, self._key_struct, self._envelope())
            if context.outlet is None
            else TypedForm(context, context.outlet, self.topic, self._key_struct, self._envelope())
        )

    @property
    def value_schema(self) -> ConnectSchema:
        """The schema of its records' values, before transforms."""
        return self._envelope()

    def _envelope(self) -> ConnectSchema:
        names = self._context.names
        return ConnectSchema(
            "struct",
            name=names.schema_name(f"{self.topic}.Envelope"),
            version=2,
            fields=(
                ("before", self._row),
                ("after", self._row),
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
        op = tuples.op
        new, old = _sides(raw, tuples)
        after, before = new.written(self._form, self._value), old.written(self._form, self._value)
        new_key, old_key = self._written_keys(new, old)
        moved = self._moved(op, old, old_key, new_key)
        return self._planned(raw, op, moved, before=before, after=after, old_key=old_key, new_key=new_key)

    def counted(self, raw: pa.RecordBatch, tuples: TupleBatch) -> CountedEvents:
        """Return the records of ``plan`` for the transaction counter, without writing more than decides their number.

        Deletes and updates without values, which have no records, are left out.
        """
        op = tuples.op
        new, old = _sides(raw, tuples)
        keys = self._written_keys(new, old) if len(old.at) else (None, None)
        before = after = None
        if self._context.options.skip_messages_without_change:
            after, before = new.written(self._form, self._value), old.written(self._form, self._value)
        row, sub, _, _ = self._kept(op, self._moved(op, old, keys[1], keys[0]), before, after)
        has_values = ((op != _DELETE) | (tuples.old_kind != 0))[row]
        seq, lsn = (raw.column(name).to_numpy()[row[has_values]] for name in ("seq", "commit_lsn"))
        return CountedEvents(str(self.table.id), seq, sub[has_values], lsn)

    def _written_keys(self, new: _Side, old: _Side) -> tuple[pa.Array | None, pa.Array | None]:
        if self._key is None:
            return None, None
        return new.written(self._form, self._key), old.written(self._form, self._key)

    def _moved(self, op: np.ndarray, old: _Side, old_key: pa.Array | None, new_key: pa.Array | None) -> Bools:
        """Return which messages are updates of their key. Shape: uint8[N] -> bool[N]."""
        if not len(old.at) or self._key_struct is None or old_key is None:
            return np.zeros(len(op), dtype=bool)
        texts = (self._form.compared(one, self._key_struct) for one in (old_key, new_key))
        return np.asarray((op == _UPDATE) & _true(pc.not_equal(*texts)))

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
        row, sub, op, moved = self._kept(kinds, moved, before, after)
        return PlannedChanges(raw, row, sub, op, moved, before, after, old_key, new_key)

    def _kept(
        self, kinds: np.ndarray, moved: np.ndarray, before: pa.Array | None, after: pa.Array | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return row, sub, op and moved of the records (``PlannedChanges``). The images are read only if needed."""
        first = np.select(
            [kinds == _INSERT, (kinds == _DELETE) | moved], [_CREATED, _DELETED], default=_CHANGED
        ).astype(np.uint8)
        again = np.flatnonzero(moved)
        row = np.concatenate([np.arange(len(kinds)), again])
        sub = np.concatenate([np.zeros(len(kinds), dtype=np.int64), np.full(len(again), 2, dtype=np.int64)])
        op = np.concatenate([first, np.full(len(again), _CREATED, dtype=np.uint8)])
        keep = ~np.isin(op, [ord(letter) for letter in self._context.skipped])
        if self._context.options.skip_messages_without_change:
            texts = (self._form.compared(image, self._row) for image in (before, after))
            keep &= ~((op == _CHANGED) & _true(pc.equal(*texts))[row])
        row, sub, op = row[keep], sub[keep], op[keep]
        return row, sub, op, moved[row]

    def render(
        self, planned: PlannedChanges, orders: EventNumbers | None, now_ns: int, xmin: int | None = None
    ) -> pa.Table:
        """Return the records of a plan, with their tombstones: RECORDS.

        ``orders``: the indexes of the plan's E records in their transactions, None without transaction metadata.
        ``now_ns``: when the events were created, nanoseconds since 1970-01-01T00:00:00Z.
        """
        raw, row, op = planned.raw, planned.row, planned.op
        if len(row) == 0:
            return RECORDS.empty_table()
        form = self._form
        facts = raw if _is_all(row, raw.num_rows) else raw.drop_columns(["payload"]).take(pa.array(row))
        value = form.value(
            before=None if (op == _CREATED).all() else _where(op != _CREATED, planned.before, row),
            after=None if (op == _DELETED).all() else _where(op != _DELETED, planned.after, row),
            source=self._source(facts, xmin),
            transaction=form.transaction(facts.column("xid"), facts.column("lsn"), orders),
            op=op,
            now_ns=now_ns,
        )
        dead = np.flatnonzero(op == _DELETED) if self._context.options.tombstones_on_delete else None
        seq = facts.column("seq").to_numpy()
        key, headers = form.key(self._keys(planned)), self._headers(planned)
        return form.records(seq, planned.sub, key=key, value=value, headers=headers, dead=dead)

    def changes(
        self,
        raw: pa.RecordBatch,
        tuples: TupleBatch,
        now_ns: int,
        orders: EventNumbers | None = None,
        xmin: int | None = None,
    ) -> pa.Table:
        """``plan`` and ``render`` in one call, without transaction metadata."""
        return self.render(self.plan(raw, tuples), orders, now_ns, xmin)

    def reads(
        self, columns: RawColumns, markers: pa.Array, facts: EventSnapshot, now_ns: int, first_seq: int = 0
    ) -> pa.Table:
        """Return records of rows read by a snapshot: RECORDS, numbered from ``first_seq``.

        Shape:  columns of N rows, markers[N] (source.snapshot of each) → N records.
        """
        rows = len(markers)

        def constant(value: int | None) -> pa.Array:
            return pa.nulls(rows, pa.int64()) if value is None else pa.repeat(pa.scalar(value, pa.int64()), rows)

        form = self._form
        source = SourceFacts(
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
        value = form.value(
            before=None,
            after=form.rows(self._value, columns, rows, read=True),
            source=form.source(source),
            transaction=form.transaction(constant(None), constant(None), None),
            op=np.full(rows, _READ, dtype=np.uint8),
            now_ns=now_ns,
        )
        key = None if self._key is None else form.key(form.rows(self._key, columns, rows, read=True))
        seq = np.arange(first_seq, first_seq + rows)
        return form.records(seq, np.zeros(rows, dtype=np.int64), key=key, value=value, headers=form.headers(rows))

    def truncates(
        self, truncate: Truncate, index: int, orders: EventNumbers | None, now_ns: int, xmin: int | None = None
    ) -> pa.Table:
        """Return the record of a TRUNCATE of this table, the ``index``-th of the message; none if t is skipped."""
        if "t" in self._context.skipped:
            return RECORDS.empty_table()
        form = self._form
        facts = SourceFacts.of_message(truncate, truncate.commit_ts_us, xmin, *self.table.id)
        value = form.value(
            before=None,
            after=None,
            source=form.source(facts),
            transaction=form.transaction(facts.xid, facts.lsn, orders),
            op=np.array([_TRUNCATED], dtype=np.uint8),
            now_ns=now_ns,
        )
        seq = np.array([truncate.seq])
        return form.records(seq, np.array([index]), key=None, value=value, headers=form.headers(1))

    def _source(self, facts: pa.RecordBatch, xmin: int | None) -> pa.Array:
        source = SourceFacts(
            *self.table.id,
            ts_us=facts.column("commit_ts_us"),
            lsn=facts.column("lsn"),
            prior_end_lsn=facts.column("prior_end_lsn"),
            xid=facts.column("xid"),
            origin=facts.column("origin"),
            origin_lsn=facts.column("origin_lsn"),
            xmin=xmin,
        )
        return self._form.source(source)

    def _keys(self, planned: PlannedChanges) -> pa.Array | None:
        if planned.new_key is None or planned.old_key is None:
            return None
        row, op = planned.row, planned.op
        payload = _where(op != _DELETED, planned.new_key, row)
        if (op == _DELETED).any():
            payload = pc.if_else(pa.array(op == _DELETED), planned.old_key.take(pa.array(row)), payload)
        return payload

    def _headers(self, planned: PlannedChanges) -> Any:
        """Return the context headers; for the records of a key change, the other record's key is before them."""
        if not planned.moved.any() or planned.new_key is None or planned.old_key is None:
            return self._form.headers(len(planned.row))
        taken, deleted = pa.array(planned.row), planned.op == _DELETED
        other = pc.if_else(pa.array(deleted), planned.new_key.take(taken), planned.old_key.take(taken))
        return self._form.moved_headers(other, deleted, planned.moved)


@dataclass(frozen=True, slots=True)
class _Side:
    """The new or the old tuples of N messages: ``columns`` of those that have one, whose indexes are ``at``."""

    columns: RawColumns
    at: np.ndarray
    lsn: np.ndarray
    rows: int

    def written(self, form: TextForm | TypedForm, writer: RowWriter) -> pa.Array:
        """Return the writer's struct for each message's tuple, null without one. Shape: [N]"""
        return _spread(form.rows(writer, self.columns, len(self.at), lsn=self.lsn), self.at, self.rows)


def _sides(raw: pa.RecordBatch, tuples: TupleBatch) -> tuple[_Side, _Side]:
    """Return the new tuples, filled from the old ones where a value was not sent, and the old ones."""
    rows, lsn = raw.num_rows, raw.column("lsn").to_numpy()
    at_new, at_old = np.flatnonzero(tuples.op != _DELETE), np.flatnonzero(tuples.old_kind != 0)
    new = filled_from(tuples.new, tuples.old) if len(at_old) else tuples.new
    return (
        _Side(_some(new, at_new, rows), at_new, lsn[at_new], rows),
        _Side(_some(tuples.old, at_old, rows), at_old, lsn[at_old], rows),
    )


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
