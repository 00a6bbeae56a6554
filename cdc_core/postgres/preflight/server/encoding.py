"""Checks whether every text of the database can be read as UTF-8."""

from __future__ import annotations

from cdc_core.postgres.connection import has_raw_text
from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, doubtful, good

NAME = "encoding"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    if has_raw_text(context.connection):
        return [
            doubtful(
                NAME,
                "The database's encoding is SQL_ASCII, which permits text that is not UTF-8.",
                "A table is paused when a value of it is not UTF-8: correct such values in the source.",
            )
        ]
    return [good(NAME, f"The database's encoding is {context.connection.info.parameter_status('server_encoding')}.")]
