"""Checks whether the server writes the WAL that logical decoding needs."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.postgres.preflight.statements import setting

NAME = "wal_level"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return [verdict(context.server.wal_level)]


def verdict(wal_level: str) -> Finding:
    """The setting's value."""
    statement = setting("wal_level", "logical")
    if wal_level == "logical":
        return good(NAME, "wal_level is logical.", statement)
    return bad(
        NAME,
        f"wal_level is {wal_level}, not logical.",
        "As a superuser run this and restart the server; of a managed service, change its parameter:",
        statement,
    )
