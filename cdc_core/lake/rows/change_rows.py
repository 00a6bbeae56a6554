"""Typed change rows: RawColumns of the stream or a snapshot → the natural representation of every captured column.

This module connects decoding and types. Everything here is a pure function and runs in the process that has the input:
on a Spark worker for spool files and COPY streams, in the driver for tables whose values must be masked before anything
is written.

The rows that a destination gets, one for each event (``change_schema``). It may rely on this:

* (``__commit_lsn``, ``__tx_index``) identifies a table's event within an epoch, is the same at every replay, and orders
  the table's events as they happened. ``__lsn`` is for users, not for order. Rows of one snapshot share a position.
* ``__op`` is c, u, d or t (in changelogs also r, for rows of snapshots). c and u have ``after``; d has none; t has
  neither image. ``before`` is what the server sent, which depends on the replica identity: nothing, the identity's
  columns (the others null), or the whole row. If a u changed the identity, ``before`` has its former values.
* A column named in ``__unchanged`` is null in ``after`` and not null in the source: its value is the former one of the
  row, at the row's former key. A destination that ignored this would set a large value to null with every update of
  another column.
* A value that the natural type cannot represent is null in its column, and its text is in the image's ``__rescued``.
  Keys with such a value are compared by the text; a destination that ignored it would take two rows for one.
* Columns are those of the table's version under which the event was written; masked ones have the masked value, and
  excluded ones are left out. Rows of two versions are never in one batch.
* ``reads`` are lake rows, not events: the captured columns, ``__rescued``, and the position of the snapshot with index
  -1, which is before every event at its LSN.

Every function may be called again for the same bytes, on another worker, and returns equal rows: Spark repeats tasks. A
codec or mapper that depended on a clock, on chance or on other rows would make a repeated append another row.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode import RawColumns, TupleBatch
from cdc_core.errors import ConversionError
from cdc_core.schema import TableSchema
from cdc_core.selection import ColumnPlan
from cdc_core.types import ColumnCodec, FailureHandlingMode

OP, COMMIT_LSN, TX_INDEX, LSN, XID, COMMIT_TS, UNCHANGED = (
    "__op",
    "__commit_lsn",
    "__tx_index",
    "__lsn",
    "__xid",
    "__commit_ts",
    "__unchanged",
)
BEFORE, AFTER, RESCUED = "before", "after", "__rescued"

_log = logging.getLogger(__name__)
_RESCUED_TYPE = pa.map_(pa.string(), pa.string())
_COMMIT_TS_TYPE = pa.timestamp("us", tz="UTC")
_OP_OF_KIND = {ord("I"): "c", ord("U"): "u", ord("D"): "d"}


@dataclass(frozen=True)
class RowTyper:
    """Converts a table version's text columns to natural values.

    ``plans`` and ``codecs`` are parallel to ``table.columns``; a column whose plan is not included is left out. A value
    that the natural type cannot represent (an infinite date) is rescued, whatever ``failure`` is. Text that no server
    writes is rescued too, so that nothing is lost; but with ``fail`` the methods raise ConversionError instead, and
    with ``warn`` a warning is logged. ``failure`` is event.converting.failure.handling.mode.
    """

    table: TableSchema
    plans: tuple[ColumnPlan, ...]
    codecs: tuple[ColumnCodec, ...]
    failure: FailureHandlingMode = FailureHandlingMode.WARN

    @cached_property
    def row_type(self) -> pa.StructType:
        """The struct of ``before`` and ``after``: the captured columns and ``__rescued``."""
        columns = zip(self.plans, self.codecs, strict=True)
        fields = [pa.field(plan.name, codec.natural.arrow_type) for plan, codec in columns if plan.included]
        return pa.struct([*fields, pa.field(RESCUED, _RESCUED_TYPE)])

    @cached_property
    def change_schema(self) -> pa.Schema:
        """The schema of ``changes`` and ``truncates``: one changelog row per event."""
        return pa.schema(
            [
                pa.field(OP, pa.string()),
                pa.field(COMMIT_LSN, pa.int64()),
                pa.field(TX_INDEX, pa.int64()),
                pa.field(LSN, pa.int64()),
                pa.field(XID, pa.int64()),
                pa.field(COMMIT_TS, _COMMIT_TS_TYPE),
                pa.field(UNCHANGED, pa.list_(pa.string())),
                pa.field(BEFORE, self.row_type),
                pa.field(AFTER, self.row_type),
            ]
        )

    @property
    def read_schema(self) -> pa.Schema:
        """The schema of ``reads``: one lake row per source row."""
        return pa.schema(
            [
                *self.row_type,
                pa.field(COMMIT_LSN, pa.int64()),
                pa.field(TX_INDEX, pa.int64()),
                pa.field(COMMIT_TS, _COMMIT_TS_TYPE),
            ]
        )

    def changes(self, raw: pa.RecordBatch, tuples: TupleBatch) -> pa.RecordBatch:
        """Convert row changes to changelog rows.

        Shape:  RAW_SCHEMA[N], TupleBatch[N] -> change_schema[N]

        Nulls:  ``after`` is null for a delete, ``before`` if the server sent no old tuple; an unchanged TOAST value is
        null and named in ``__unchanged``, unless a FULL old tuple contains it.
        """
        count = raw.num_rows
        op = _ops(tuples.op)
        new, unchanged = self._with_old_values(tuples)
        no_after = tuples.op == ord("D")
        no_before = tuples.old_kind == 0
        lsn = raw.column("lsn")
        before = pa.nulls(count, self.row_type) if no_before.all() else self._struct(tuples.old, no_before, lsn)
        after = pa.nulls(count, self.row_type) if no_after.all() else self._struct(new, no_after, lsn)
        return pa.RecordBatch.from_arrays(
            [op, *_positions(raw), self._unchanged_names(unchanged, count), before, after], schema=self.change_schema
        )

    def truncates(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Convert truncates to changelog rows: op t, both images null. Shape: RAW_SCHEMA[N] -> change_schema[N]."""
        count = raw.num_rows
        none = pa.nulls(count, self.row_type)
        op = pa.array(np.full(count, "t", dtype=object), pa.string())
        return pa.RecordBatch.from_arrays(
            [op, *_positions(raw), self._unchanged_names((), count), none, none], schema=self.change_schema
        )

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that ``reads`` needs, in the table's order; all if none is captured, to get the number of rows.

        Other columns are not queried: the role may have no privilege for them.
        """
        included = tuple(plan.name for plan in self.plans if plan.included)
        return included or tuple(plan.name for plan in self.plans)

    def reads(self, columns: RawColumns, commit_lsn: int, taken_us: int) -> pa.RecordBatch:
        """Convert snapshot rows to lake rows, all at the snapshot's position. Shape: RawColumns[N] -> read_schema[N].

        ``columns`` are the table's, or ``read_columns`` alone.
        """
        count = len(columns)
        if len(columns.text) < len(self.plans):
            columns = self._with_gaps(columns)
        values, rescued = self._typed(columns, None)
        facts = [
            pa.array(np.full(count, commit_lsn, dtype=np.int64)),
            pa.array(np.full(count, -1, dtype=np.int64)),
            pa.array(np.full(count, taken_us, dtype=np.int64)).cast(_COMMIT_TS_TYPE),
        ]
        return pa.RecordBatch.from_arrays([*values, rescued, *facts], schema=self.read_schema)

    def _with_gaps(self, columns: RawColumns) -> RawColumns:
        """Return all columns of the table, with nulls for those that were not read: they are left out of the result."""
        by_name = dict(zip(columns.names, columns.text, strict=True))
        none = pa.nulls(len(columns), pa.string())
        names = tuple(plan.name for plan in self.plans)
        return RawColumns(names, tuple(by_name.get(name, none) for name in names), (None,) * len(names), len(columns))

    def _struct(self, columns: RawColumns, is_null: np.ndarray, lsn: pa.Array) -> pa.StructArray:
        values, rescued = self._typed(columns, lsn)
        mask = pa.array(is_null) if is_null.any() else None
        return pa.StructArray.from_arrays([*values, rescued], fields=list(self.row_type), mask=mask)

    def _typed(self, columns: RawColumns, lsn: pa.Array | None) -> tuple[list[pa.Array], pa.Array]:
        """Return the natural values of the included columns, and the ``__rescued`` map of values they cannot hold."""
        values: list[pa.Array] = []
        misfits: list[tuple[str, pa.Array, pa.Array]] = []
        for plan, codec, text in zip(self.plans, self.codecs, columns.text, strict=True):
            if not plan.included:
                continue
            shown = text if plan.mapper is None else plan.mapper(text)
            converted = codec.natural.convert(shown)
            values.append(converted.values)
            if converted.bad is not None and pc.any(converted.bad).as_py():
                self._judge(plan.name, codec, shown, converted.bad, lsn)
                misfits.append((plan.name, shown, converted.bad))
        return values, _rescued(misfits, len(columns))

    def _judge(self, name: str, codec: ColumnCodec, text: pa.Array, bad: pa.BooleanArray, lsn: pa.Array | None) -> None:
        """Report texts that are not values of the type; values that only do not fit are not reported.

        Raises ConversionError with ``fail``.
        """
        natural = codec.natural
        places = np.flatnonzero(bad.fill_null(False).to_numpy(zero_copy_only=False))
        if natural.is_misfit is not None:
            places = places[~natural.is_misfit(text.take(pa.array(places))).to_numpy(zero_copy_only=False)]
        if not len(places):
            return
        expected = self.table.column(name).type.name
        at = None if lsn is None else int(lsn[int(places[0])].as_py())
        error = ConversionError(str(self.table.id), name, f"text of type {expected}", len(places), at)
        if self.failure is FailureHandlingMode.FAIL:
            raise error
        level = logging.WARNING if self.failure is FailureHandlingMode.WARN else logging.DEBUG
        _log.log(level, "%s Their text is kept in %s.", error.message, RESCUED)

    def _with_old_values(self, tuples: TupleBatch) -> tuple[RawColumns, tuple[np.ndarray | None, ...]]:
        """Return ``new`` with unchanged values taken from a FULL old tuple, and the masks of values still unchanged."""
        has_old = tuples.old_kind == ord("O")
        if not has_old.any() or all(mask is None for mask in tuples.new.unchanged):
            return tuples.new, tuples.new.unchanged
        text: list[pa.Array] = []
        unchanged: list[np.ndarray | None] = []
        for new, old, mask in zip(tuples.new.text, tuples.old.text, tuples.new.unchanged, strict=True):
            if mask is None:
                text.append(new)
                unchanged.append(None)
                continue
            known = mask & has_old & old.is_valid().to_numpy(zero_copy_only=False)
            text.append(pc.if_else(pa.array(known), old, new))
            unchanged.append(mask & ~known)
        return RawColumns(tuples.new.names, tuple(text), tuple(unchanged), len(tuples.new)), tuple(unchanged)

    def _unchanged_names(self, masks: Sequence[np.ndarray | None], count: int) -> pa.ListArray:
        """Return the names of each row's unchanged columns. Shape: masks[C][N] -> list<string>[N], never null."""
        live = [
            (plan.name, mask)
            for plan, mask in zip(self.plans, masks, strict=False)
            if plan.included and mask is not None and mask.any()
        ]
        if not live:
            return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, dtype=np.int32)), pa.array([], pa.string()))
        grid = np.stack([mask for _, mask in live], axis=1)
        offsets = np.concatenate(([0], np.cumsum(grid.sum(axis=1)))).astype(np.int32)
        names = pa.array([name for name, _ in live], pa.string())
        return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(np.nonzero(grid)[1])))


def _ops(kinds: np.ndarray) -> pa.StringArray:
    """Convert message kinds (ASCII of I, U, D) to c, u, d."""
    index = np.searchsorted(np.array(sorted(_OP_OF_KIND)), kinds)
    names = pa.array([_OP_OF_KIND[kind] for kind in sorted(_OP_OF_KIND)], pa.string())
    return names.take(pa.array(index))


def _positions(raw: pa.RecordBatch) -> list[pa.Array]:
    return [
        raw.column("commit_lsn"),
        raw.column("tx_index"),
        raw.column("lsn"),
        raw.column("xid"),
        raw.column("commit_ts_us").cast(_COMMIT_TS_TYPE),
    ]


def _rescued(misfits: list[tuple[str, pa.Array, pa.Array]], count: int) -> pa.Array:
    """Return the map column of values that their natural type cannot represent: name → text; null if there are none."""
    if not misfits:
        return pa.nulls(count, _RESCUED_TYPE)
    grid = np.stack([bad.fill_null(False).to_numpy(zero_copy_only=False) for _, _, bad in misfits], axis=1)
    per_row = grid.sum(axis=1)
    offsets = np.concatenate(([0], np.cumsum(per_row))).astype(np.int32)
    rows, which = np.nonzero(grid)
    names = pa.array([name for name, _, _ in misfits], pa.string()).take(pa.array(which))
    # The columns are concatenated, so that (row, column) is one index into the result.
    laid = pa.concat_arrays([text.cast(pa.string()) for _, text, _ in misfits])
    texts = laid.take(pa.array(which * count + rows))
    validity = pa.array(per_row > 0)
    entries = pa.StructArray.from_arrays(
        [names, texts], fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
    )
    return pa.Array.from_buffers(
        _RESCUED_TYPE,
        count,
        [validity.buffers()[1], pa.array(offsets).buffers()[1]],
        children=[entries],
    )
