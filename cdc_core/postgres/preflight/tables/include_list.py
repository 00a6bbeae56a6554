"""Checks whether a table is captured."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.options import PublicationAutocreateMode
from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.replication import partition_names
from cdc_core.schema import TableId

NAME = "captured tables"
_SHOWN = 50


def check(context: Context) -> list[Finding]:
    """Run the check."""
    is_listed = (
        context.options.plugin_name.has_publication
        and context.options.publication_autocreate_mode is PublicationAutocreateMode.FILTERED
    )
    naming = partition_names.named(context.connection, context.options, context.tables)
    divided = [
        doubtful(NAME, partition_names.divided_text(root, leaves), partition_names.DIVIDED_REMEDY)
        for root, leaves in naming.divided.items()
    ]
    return [*verdicts(context.names, [table.id for table in naming.own], is_listed), *divided]


def verdicts(names: Sequence[TableId], captured: Sequence[TableId], is_listed: bool = False) -> list[Finding]:
    """``names``: all existing tables. ``captured``: those whose changes are sent, under their own names.

    ``is_listed``: the publication lists the captured tables, so there has to be one.
    """
    if not captured:
        problem = f"None of the database's {len(names)} tables is captured"
        remedy = "Check table.include.list, table.exclude.list and the same for schemas; patterns match schema.table."
        if is_listed:
            return [bad(NAME, f"{problem}, so a filtered publication would be empty.", remedy)]
        return [doubtful(NAME, f"{problem} yet.", remedy)]
    return [good(NAME, f"{len(captured)} of {len(names)} tables are captured: {listed(captured, _SHOWN)}.")]
