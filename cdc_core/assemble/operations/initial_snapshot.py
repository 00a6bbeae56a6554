"""Operation ``initial_snapshot``: takes the snapshot that the snapshot mode requires at start."""

from __future__ import annotations

from contextlib import ExitStack

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import SnapshotCall
from cdc_core.assemble.metrics import meter
from cdc_core.assemble.notifications import observed
from cdc_core.engine import read_required, require_rules
from cdc_core.snapshot import SnapshotReport


def initial_snapshot(context: RunContext, call: SnapshotCall) -> list[SnapshotReport]:
    """Take the initial snapshot that ``snapshot.mode`` requires, if any. Creates the slot if it does not exist.

    ``only`` are the tables to be read if the mode requires it (None: all captured). Others are read as well if the
    lake cannot continue without: if the slot or its WAL is lost, or if the publication did not contain them.
    ``handover`` gets the claim, and what was proved where nothing is read and nothing is changed.
    """
    context.config.require_carried()
    meter(context)  # raises an error before anything is made
    with ExitStack() as closing:
        source = closing.enter_context(context.claimed())
        resets = context.lake.mode.position_lost
        is_lost = resets and source.slot().is_lost
        tables, slot = context.checked(source, recreates_slot=resets)
        context.observers.opened(tables)
        require_rules(context.lake, tables)
        observers = observed(context, call.on_progress, call.on_notification)
        reports, proved = read_required(
            context.snapshots, source, tables, slot, call.spark, observers, call.only, is_lost=is_lost
        )
        if call.handover is not None:
            call.handover.give(source, proved, closing.pop_all())
        return reports
