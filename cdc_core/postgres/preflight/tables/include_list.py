"""Checks whether a table is captured."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.options import PublicationAutocreateMode
from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.schema.table import TableId

NAME = "captured tables"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    is_listed = (
        context.options.plugin_name.has_publication
        and context.options.publication_autocreate_mode is PublicationAutocreateMode.FILTERED
    )
    return verdicts(context.names, len(context.tables), is_listed)


def verdicts(names: Sequence[TableId], captured: int, is_listed: bool = False) -> list[Finding]:
    """``names``: all existing tables. ``captured``: the number of captured tables.

    ``is_listed``: the publication lists the captured tables, so there has to be one.
    """
    if not captured:
        found = f"None of the database's {len(names)} tables is captured"
        remedy = "Check table.include.list, table.exclude.list and the same for schemas; patterns match schema.table."
        if is_listed:
            return [bad(NAME, f"{found}, so a filtered publication would be empty.", remedy)]
        return [doubtful(NAME, f"{found} yet.", remedy)]
    return [good(NAME, f"{captured} of {len(names)} tables are captured.")]
