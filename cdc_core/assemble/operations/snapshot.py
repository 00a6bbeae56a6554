"""Operation ``snapshot``: reads tables into the lake, replacing existing lake tables."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.destination import SnapshotCall
from cdc_core.assemble.notifications import observed
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.engine import ask_stream, read_named, snapshot_of
from cdc_core.errors import InUseError
from cdc_core.schema import TableId
from cdc_core.snapshot import REREAD_TABLE, SnapshotReport


def snapshot(context: RunContext, call: SnapshotCall) -> list[SnapshotReport]:
    """Read tables (``only``; None: all captured) at one consistent point, replacing existing lake tables.

    A stream that is running is asked to read them, each while the others go on.
    """
    context.config.require_carried()
    try:
        with context.claimed() as source:
            tables, _ = context.checked(source)
            context.observers.opened(tables)
            observers = observed(context, call.on_progress, call.on_notification)
            return read_named(context.snapshots, source, tables, call.only, call.spark, observers)
    except InUseError as error:
        return _asked(context, call.only, error)


def _asked(context: RunContext, tables: Sequence[TableId] | None, in_use: InUseError) -> list[SnapshotReport]:
    with context.source() as source:
        chosen = source.selection.chosen_for_snapshot(context.captured(source), tables)
    signals, asked = own_signals(context.config), {table.id: dict[str, object]() for table in chosen}
    answers = ask_stream(signals, context.is_running, REREAD_TABLE, asked, in_use)
    reports = [snapshot_of(table, answer) for table, answer in answers.items()]
    return [report for report in reports if report is not None]
