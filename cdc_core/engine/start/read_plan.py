"""Which tables a start reads into the lake, from what is known before anything is created: a pure function.

    snapshot.mode   slot   proof of the stream          read
    any             any    continues                    tables without rows, if the mode reads any
    when_needed     lost   any                          all tables, with a new slot
    initial         any    not continued, lake is empty all tables, in a new epoch
    initial         any    slot.name was changed        all tables, in a new epoch
    always          any    any                          all tables
    no_data         any    not continued                nothing: the mismatch is an error, or accepted as a gap

A table is read, too, if the publication did not contain it: the stream lacks its changes since then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cdc_core.engine.reading.continuity import Break
from cdc_core.engine.start.continuity import Continuity
from cdc_core.schema import TableId, TableSchema
from cdc_core.snapshot import ModeActions


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a start does. ``restarts``: a new epoch of the stream begins, in which every table is unread.

    ``reads``: rows are read at all. ``repeats``: also those of tables that the lake has. ``has_slot``: the slot exists;
    a new one has no changes from before its creation. ``needs_session``: Spark is started before the epoch is recorded,
    so that nothing remains if Java is missing.
    """

    restarts: bool
    reads: bool
    repeats: bool
    has_slot: bool
    needs_session: bool

    @property
    def looks(self) -> bool:
        """Whether it depends on the lake's tables what is read; if not, they need not be opened."""
        return self.reads or not self.has_slot

    def may_read(self, candidates: Sequence[TableSchema], known: Collection[TableId]) -> bool:
        """Return whether rows may be read, or a slot is made: before anything is created at the source."""
        has_unread = self.repeats or any(table.id not in known for table in candidates)
        return not self.has_slot or (self.reads and bool(candidates) and has_unread)

    def tables(
        self,
        candidates: Sequence[TableSchema],
        asked: Collection[TableId],
        known: Collection[TableId],
        added: Collection[TableId],
    ) -> list[TableSchema]:
        """Return those of ``candidates`` to read: the caller has named them (``asked``), and the stream continues no
        rows.

        ``known`` are the tables whose snapshot is in the lake, ``added`` those that were just published. With a new
        epoch, and for a table that was published again, it does not matter what the caller has named.
        """
        continued = set() if self.repeats or not self.has_slot else {*known} - {*added}
        again = {table.id for table in candidates} if self.restarts else {*known} & {*added}
        return [table for table in candidates if table.id in {*asked} | again and table.id not in continued]


def what_to_read(mode: ModeActions, proof: Continuity, *, has_slot: bool, is_lost: bool) -> ReadPlan:
    """Return the plan of a start. ``is_lost``: the slot was lost, and was dropped because the mode reads all then."""
    is_renamed = proof.mismatch is not None and proof.mismatch.kind is Break.SLOT_NAME
    is_first = mode.first and (proof.is_empty or is_renamed)
    restarts = proof.mismatch is not None and (mode.position_lost or mode.later or is_first)
    by_mode = mode.later or mode.first
    needs_session = restarts or (proof.is_new and (by_mode or not has_slot))
    return ReadPlan(restarts, by_mode or restarts or is_lost, mode.later or restarts, has_slot, needs_session)
