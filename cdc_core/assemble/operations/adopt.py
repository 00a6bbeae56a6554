"""Operation ``adopt``: takes a slot over from Debezium's connector, at the offset that Connect has stored for it.

Nothing is changed at the source. What each destination decides (``offsets/takeover``) is written to its own position,
in one commit each: the next ``run`` does it. So a kill between two, or before them, leaves what the same command
completes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdc_core.assemble.context import RunContext
from cdc_core.events import FILE_SETTING, OffsetInSlot, OffsetPlace, stored_offset
from cdc_core.lsn import Lsn
from cdc_core.offsets import AdoptReport, SlotOffer
from cdc_core.postgres import slot as slots


@dataclass(frozen=True, slots=True)
class AdoptRequest:
    """``offsets``: where the offset is, as in ``OffsetPlace``; empty for the file that the connector file names.

    ``fills``: the lake is filled by a snapshot, else it gets events only. ``accepts_gap``: the slot may be past the
    offset. ``writes``: what was decided is written.
    """

    offsets: str = ""
    bootstrap_servers: str = ""
    fills: bool = True
    accepts_gap: bool = False
    writes: bool = True


def adopt(context: RunContext, asked: AdoptRequest) -> AdoptReport:
    """Take the slot over; the next run goes on from there. Raises CdcError if it cannot be done without a gap."""
    context.config.require_carried()
    stored = stored_offset(_place(context, asked))
    with context.claimed() as source:
        slot = source.slot()
        slots.check_usable(slot, context.config.postgres)
        tables, slot = context.checked(source)
        in_slot = OffsetInSlot(source, slot, tables, stored, accepts_gap=asked.accepts_gap)
        in_slot.check()
        offer = SlotOffer(stored.offset.lsn, in_slot.start, slot.confirmed_lsn or Lsn(0), asked.fills)
        takeovers = [destination.takeover(source, tables, offer) for destination in context.destinations]
        if all(takeover.is_repeated for takeover in takeovers):
            said = "This offset was adopted before, and the lake continues the slot: nothing to do."
            return AdoptReport(tuple(in_slot.found), (said,), is_new=False)
        if in_slot.is_passed and all(takeover.has_moved_on for takeover in takeovers):
            said = "The slot is continued by what wal2lake has written since: nothing to do."
            return AdoptReport(tuple(in_slot.found), (said,), is_new=False)
        reads_rows = all(takeover.reads_rows for takeover in takeovers)
        delivered = in_slot.place(reads_rows=reads_rows).delivered
        decided = [takeover.decide(delivered) for takeover in takeovers]
        if stored.offset.incremental and not reads_rows:
            decided.append(_not_continued(context, stored.offset.incremental))
        # The lake last: if it was not adopted yet, it is at worst filled by a snapshot.
        for takeover in reversed(takeovers) if asked.writes else ():
            takeover.write()
        return AdoptReport(tuple(in_slot.found), tuple(decided), any(takeover.is_new for takeover in takeovers))


def _place(context: RunContext, asked: AdoptRequest) -> OffsetPlace:
    config = context.config
    configured = next(
        (setting.text for setting in config.settings if setting.name == FILE_SETTING and setting.text.strip()), ""
    )
    offsets = asked.offsets.strip() or configured
    return OffsetPlace(offsets, asked.bootstrap_servers, config.kafka, config.connector_name, context.name)


def _not_continued(context: RunContext, tables: tuple[str, ...]) -> str:
    """Say how an incremental snapshot goes on: rows that were sent as changes or by its chunks are sent again."""
    data = json.dumps({"data-collections": list(tables)})
    return (
        "the incremental snapshot is not continued; request it again while a run is active: wal2lake signal "
        f"{context.config.source} execute-snapshot --data '{data}'"
    )
