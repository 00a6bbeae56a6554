"""Names the known faults of the server's version and of the output plug-in, with what ends each."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.known_faults import ConcernedTable, KnownFault, concerned_tables, faults_of
from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, doubtful, good

NAME = "known faults"


def check(context: Context) -> list[Finding]:
    """Run the check. Tables that are refused because of a fault are named by the checks of the lake."""
    options, version = context.options, context.server.version
    concerned = concerned_tables(options, version, context.tables)
    faults = faults_of(options, version)
    found = [_finding(context, fault, [one for one in concerned if one.fault is fault]) for fault in faults]
    said = [one for one in found if one is not None]
    return said or [good(NAME, f"PostgreSQL {context.server.text} and {options.plugin_name.on_server} have none.")]


def _finding(context: Context, fault: KnownFault, concerned: Sequence[ConcernedTable]) -> Finding | None:
    """One finding a fault; none for one of a plug-in that concerns no captured table."""
    columns = [f"{one.table.id}.{name}" for one in concerned for name in one.columns]
    where = f" Columns concerned: {listed(columns)}." if columns else ""
    if fault.versions is None:
        return doubtful(NAME, f"{fault.effect}{where}", f"{_sentence(fault.remedy)}") if columns else None
    upgrade = f"Upgrade the server to {fault.repaired(context.server.version)}"
    remedy = f"{upgrade}; or {fault.remedy}." if fault.remedy and columns else f"{upgrade}."
    done = "" if fault.answer.is_manual else f" wal2lake: {fault.answer.value}."
    return doubtful(NAME, f"PostgreSQL {context.server.text}: {fault.effect}{done}{where}", remedy)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
