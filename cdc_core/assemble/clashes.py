"""Tables whose columns a Delta table cannot have under their names: they are paused alone, the others go on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from cdc_core.assemble.context import RunContext
from cdc_core.errors import TableError
from cdc_core.postgres.preflight.finding import Finding, doubtful
from cdc_core.schema.plan import NameClash, name_clash
from cdc_core.schema.table import TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.selection.columns import plan_columns

_log = logging.getLogger(__name__)


def without_clashes(context: RunContext, tables: Sequence[TableSchema], *, named: bool = False) -> list[TableSchema]:
    """Return the tables that a lake can have; the others are recorded as paused.

    ``named``: the user named these tables, so TableError is raised instead.
    """
    from cdc_core.sink.delta.shape import lake_properties
    from cdc_core.sink.delta.shape_log import History, ShapeLog

    found = {table.id: clash for table in tables if (clash := _clash(context, table)) is not None}
    if found and named:
        table, clash = next(iter(found.items()))
        raise TableError(clash.reason, clash.remedy, str(table))
    if found:
        log = ShapeLog(context.paths.shapes, lake_properties(context.config.sink.lake_history_minutes))
        histories = log.read()
        for table, clash in found.items():
            known = histories.get(table, History({}))
            newest = max(known.shapes, default=0)
            if known.reread is None or known.reread[0] < newest:
                log.want_reread(table, "it could not be read with its columns", newest, 0)
            if known.paused is None:
                _log.warning("%s is paused: %s %s", table, clash.reason, clash.remedy)
                log.pause(table, clash.reason, clash.remedy, 0)
    return [table for table in tables if table.id not in found]


def clash_findings(context: RunContext) -> list[Finding]:
    """Return a warning for each captured table that would be paused. Reads the tables' columns from the server."""
    with context.source() as source:
        tables = [table for table in source.tables() if source.selection.is_table(table.id)]
    clashes = [clash for table in tables if (clash := _clash(context, table)) is not None]
    return [doubtful("columns", f"{clash.reason} The table will be paused.", clash.remedy) for clash in clashes]


def _clash(context: RunContext, table: TableSchema) -> NameClash | None:
    plans = plan_columns(streamed(table), context.config.selection)
    return name_clash(table.id, [plan.name for plan in plans if plan.included])
