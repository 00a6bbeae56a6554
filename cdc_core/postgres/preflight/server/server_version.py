"""Checks whether the server's version is supported."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, good

NAME = "server version"
_OLDEST = 10_00_00
_STANDBY_FROM = 16_00_00


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return [verdict(context.server.version, context.server.text, context.server.is_standby)]


def verdict(version: int, text: str, is_standby: bool) -> Finding:
    """``version`` as 150018, ``text`` as 15.18."""
    if version < _OLDEST:
        return bad(NAME, f"The server is PostgreSQL {text}.", "Use PostgreSQL 10 or later, which has pgoutput.")
    if is_standby and version < _STANDBY_FROM:
        return bad(
            NAME,
            f"The server is a standby of PostgreSQL {text}.",
            "Capture from the primary; standbys support logical decoding from PostgreSQL 16 on.",
        )
    return good(NAME, f"PostgreSQL {text}{', a standby' if is_standby else ''}.")
