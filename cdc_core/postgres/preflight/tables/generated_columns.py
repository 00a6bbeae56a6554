"""Checks for columns that the lake will not have because the stream does not contain them."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, doubtful
from cdc_core.schema import TableSchema, is_streamed

NAME = "generated columns"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return verdicts(context.tables)


def verdicts(tables: Sequence[TableSchema]) -> list[Finding]:
    """Report generated columns that the publication does not send; no finding if there are none."""
    left_out = [
        f"{table.id}.{column.name}"
        for table in tables
        for column in table.columns
        if (column.generated or column.is_generated) and not is_streamed(column, table.fingerprint)
    ]
    if not left_out:
        return []
    return [
        doubtful(
            NAME,
            f"Generated columns that are not captured, because the stream does not contain them: {listed(left_out)}.",
            "Compute them in queries of the lake, or use PostgreSQL 18 with publish_generated_columns = stored.",
        )
    ]
