"""Checks whether the server waits long enough for status messages."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, doubtful, good
from cdc_core.postgres.preflight.statements import reload_settings, setting
from cdc_core.postgres.sqlstate import one_row, translated

NAME = "wal_sender_timeout"
_SHORT_MS = 10_000


def check(context: Context) -> list[Finding]:
    """Run the check."""
    with translated("reading wal_sender_timeout"):
        row = one_row(context.connection, "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'")
    return [verdict(row[0])]


def verdict(timeout_ms: int) -> Finding:
    """Milliseconds, 0 for none. Three status messages are sent in this time, so only a long pause ends the stream."""
    if timeout_ms == 0:
        return good(NAME, "wal_sender_timeout is off.")
    message = f"wal_sender_timeout is {timeout_ms / 1000:g} s."
    if timeout_ms < _SHORT_MS:
        return doubtful(
            NAME,
            message,
            "A short interruption ends the stream. As a superuser run:",
            setting(NAME, "60s"),
            reload_settings(),
        )
    return good(NAME, message)
