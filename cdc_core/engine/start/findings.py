"""What ``check`` says of a lake and its tables."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.engine.start.clashes import clash_findings
from cdc_core.engine.start.continuity import continuity_finding
from cdc_core.engine.start.misfits import misfits
from cdc_core.engine.start.rules import rules_findings
from cdc_core.postgres import Finding, Source, bad
from cdc_core.schema import TableSchema


def table_findings(lake: ConnectorLake, source: Source, named: Sequence[TableSchema]) -> list[Finding]:
    """Return whether rules, the slot's continuity, columns and keys let a run start. ``named``: what would be written.

    Raises CdcError if the server or the lake cannot be read.
    """
    captured = source.tables()
    continues = continuity_finding(lake, captured)
    return [
        *rules_findings(lake, captured),
        *([] if continues is None else [continues]),
        *clash_findings(lake, [table for table in captured if source.selection.is_table(table.id)]),
        *(bad("lake tables", error.message, error.remedy) for error in misfits(lake, source, named)),
    ]
