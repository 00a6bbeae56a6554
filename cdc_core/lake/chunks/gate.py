"""Judges rows of chunks before they are written to a lake table, and keeps out those that wait in quarantine.

The judged state of a key is its next one: the row that was read, and the changes since (``lake/apply/chunk_rows``).

    state of a key                                     lake table         quarantine
    passes                                             the state          what waits at the key is superseded
    is refused                                         no row             the state, instead of what waits at the key
    a change that waits is not shown by the chunk      left as it is      unchanged: that change is later
    a change that waits needs the lake's row there     left as it is      unchanged

What a waiting change of the row's key still had to remove is removed (``lake/reduce/deferred_changes``). Rows that are
refused are in quarantine before the lake table is written, and what is superseded is settled after that: a crash in
between repeats the chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.chunk_rows import ChunkRows, ChunkStates, chunk_states, without_keys
from cdc_core.lake.delete_columns import is_live, with_column
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import LakePosition, lake_position
from cdc_core.lake.reduce.deferred_changes import defer
from cdc_core.lake.rows.images import image, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.survey import hidden, is_op
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.quarantine import TableQuarantine, WaitingRows, settle
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lake.stores.quarantine import write_quarantine
from cdc_core.lake.stores.snapshot_events import as_reads
from cdc_core.lake.write.refused_reads import Quarantining, RefusedRows, counted


@dataclass(frozen=True, slots=True)
class Admitted:
    """The states that may be written. ``refused`` is the number of others, ``reasons`` how many of them fail each rule.

    ``settled`` are the change rows in quarantine that do not wait once the states are written.
    """

    states: ChunkStates
    settled: pa.Table
    refused: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Compared:
    """States compared with what waits: keys that are left as they are, keys that are removed, and ``Admitted``'s.

    ``waiting`` is the number of changes that wait after that.
    """

    left: pa.Table
    gone: pa.Table
    settled: pa.Table
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ChunkGate:
    """The gate of one table's chunks; ``target`` and ``lake`` are the table, merged up to the target's LSN."""

    slices: SliceTask
    target: Merge
    lake: DeltaTable

    def admit(self, chunks: Sequence[ChunkRows], changes: pa.Table) -> Admitted:
        """Return what may be written of chunks, with the ``changes`` that are merged (``chunk_states``).

        What is refused is in the quarantine table when this returns. Raises NotJudgedError if rows cannot be judged,
        LimitExceededError if too many of them are refused.
        """
        waiting = self._quarantine.waited(changes.schema)
        chunks = self._before(waiting, chunks)
        states = self._states(chunks, changes)
        compared = self._compared(waiting, states)
        if compared.left.num_rows:
            chunks, changes = self._without(chunks, changes, compared.left)
            states = self._states(chunks, changes)
        refusal = self.slices.checks.judge_reads(self.target.table, states.rows, self.target.schema.since)
        gone, refused = compared.gone, None
        if refusal is not None:
            mask, reasons = refusal
            gone = pa.concat_tables([gone, conform(states.keys.filter(pa.array(mask)), gone.schema)])
            rows = states.rows.filter(pa.array(mask))
            # A row that was deleted since has no one to wait for.
            exist = pa.array(is_live(rows))
            refused = RefusedRows(rows.filter(exist), reasons.filter(exist))
            self._keep(refused, states.rows.num_rows, compared.waiting)
        if gone.num_rows:
            states = self._states(*self._without(chunks, changes, gone, are_gone=True))
        count, reasons_of = (0, {}) if refused is None else (refused.rows.num_rows, counted(refused.reasons))
        return Admitted(states, compared.settled, count, reasons_of)

    def settle(self, admitted: Admitted) -> None:
        """Settle waiting changes in quarantine that the written rows supersede."""
        if admitted.settled.num_rows:
            path = self.slices.paths.quarantine(self.target.table.id)
            settle(path, self._place, admitted.settled, self.target.table)

    @property
    def _place(self) -> LakePosition:
        return lake_position(self.lake, self.slices.scope, self.target.table.id)

    @property
    def _quarantine(self) -> TableQuarantine:
        slices = self.slices
        return TableQuarantine(
            slices.run, slices.scope, slices.paths, self.target, self._place, self.lake.schema, lambda rows: None
        )

    def _states(self, chunks: Sequence[ChunkRows], changes: pa.Table) -> ChunkStates:
        return chunk_states(chunks, changes, self.target.table.row_key, self.lake.schema, self.target.to_lsn)

    def _without(
        self, chunks: Sequence[ChunkRows], changes: pa.Table, keys: pa.Table, *, are_gone: bool = False
    ) -> tuple[list[ChunkRows], pa.Table]:
        return without_keys(chunks, changes, keys, self._key, self.lake.schema, are_gone=are_gone)

    @property
    def _key(self) -> KeyColumns:
        return KeyColumns.of(self.target.table.row_key, self.lake.schema)

    def _keys(self, rows: pa.Table, *sides: str) -> pa.Table:
        """Return the keys of images of change rows."""
        key_schema = pa.schema([self.lake.schema.field(name) for name in self._key.read])
        images = (image(rows.filter(pa.array(validity(rows.column(side).combine_chunks()))), side) for side in sides)
        return pa.concat_tables([key_schema.empty_table(), *(conform(side_image, key_schema) for side_image in images)])

    def _before(self, waiting: WaitingRows, chunks: Sequence[ChunkRows]) -> list[ChunkRows]:
        """Return the chunks without keys of changes that wait and that they do not show."""
        out = []
        for chunk in chunks:
            late = hidden(waiting.rows, chunk.visible) & ~is_op(waiting.rows, "r") if waiting.rows.num_rows else None
            if late is not None and late.any():
                keys = self._keys(waiting.rows.filter(pa.array(late)), "after", "before")
                out += self._without([chunk], waiting.rows.slice(0, 0), keys)[0]
            else:
                out.append(chunk)
        return out

    def _compared(self, waiting: WaitingRows, states: ChunkStates) -> _Compared:
        """Return what becomes of waiting changes if all states were written."""
        none, rows = self._keys(waiting.rows.slice(0, 0)), waiting.rows
        if not rows.num_rows:
            return _Compared(none, none, rows)
        reads, key = as_reads(states.rows), self.target.table.row_key
        every = pa.concat_tables([waiting.divided(key, self.lake.schema), conform(reads, rows.schema)])
        made = defer(every, np.arange(every.num_rows) < rows.num_rows, key, self.lake.schema)
        before, since = np.split(made.waits, [rows.num_rows])
        return _Compared(
            self._keys(reads.filter(pa.array(since)), "after"),
            self._removed(made.rows, states),
            rows.filter(pa.array(~before)),
            int(np.count_nonzero(before)),
        )

    def _removed(self, applied: pa.Table, states: ChunkStates) -> pa.Table:
        """Return the keys at which a superseded change leaves no row, without those that have a state."""
        keys = self._keys(applied.filter(pa.array(is_op(applied, "d"))), "before")
        known = KeyIndex.of(self._key, conform(states.keys, keys.schema))[0]
        return keys.filter(pa.array(known.match(keys) < 0))

    def _keep(self, refused: RefusedRows, rows: int, waiting: int) -> None:
        """Quarantine states, as rows that were read at the LSN up to which the lake table is merged."""
        slices, table, count = self.slices, self.target.table, refused.rows.num_rows
        if not count:
            return
        slices.checks.require_limits(table.id, count, rows, waiting + count)
        lsn = pa.array(np.full(count, self.target.to_lsn, dtype=np.int64))
        placed = RefusedRows(with_column(refused.rows, "__commit_lsn", lsn), refused.reasons)
        into = Quarantining(
            slices.paths, slices.scope, table, self.target.schema.schema_version, slices.writer.history_minutes
        )
        made = pa.concat_tables(list(into.rows([placed])))
        write_quarantine(made, slices.paths.quarantine(table.id), self._place, self._place.merged)
