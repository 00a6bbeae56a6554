"""Operation ``reconcile``: compares lake tables with their source, and repairs rows that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.signals.own_file import reconcile_journal
from cdc_core.reconcile import Reconciler, ReconcileReport, ReconcileRequest, TableResult
from cdc_core.schema import TableId


def reconcile(
    context: RunContext,
    tables: Sequence[TableId] | None,
    asked: ReconcileRequest,
    on_table: Callable[[TableResult], None] | None,
) -> ReconcileReport:
    """Compare the lake tables of ``tables`` (None: of all captured ones) with the source; see ``Reconciler``."""
    config = context.config
    journal, index = reconcile_journal(config), config.state_path.absolute() / "index"
    made = Reconciler(context.lake, config.reconcile, journal, index, context.spark, context.run_folder)
    with context.source() as source:
        return made.run(source, context.captured(source), tables, asked, on_table)
