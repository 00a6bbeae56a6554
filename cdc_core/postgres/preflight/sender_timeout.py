"""Does the server wait long enough between two of our status messages?"""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, doubtful, good
from cdc_core.postgres.sqlstate import translated

NAME = "wal_sender_timeout"


def check(context: Context) -> list[Finding]:
    """Look."""
    with translated("reading wal_sender_timeout"):
        row = context.connection.execute(
            "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'"
        ).fetchone()
    assert row is not None
    return [verdict(row[0], context.options.status_update_interval_ms)]


def verdict(timeout_ms: int, status_ms: int) -> Finding:
    """Milliseconds both; a time-out of 0 is none. A status goes out every ``status_ms``, at most every 10 s."""
    found = f"wal_sender_timeout is {timeout_ms / 1000:g} s." if timeout_ms else "wal_sender_timeout is off."
    needed = 3 * min(status_ms, 10_000)
    if 0 < timeout_ms < needed:
        return doubtful(
            NAME,
            found,
            f"Raise it to {needed / 1000:g} s or more, or lower status.update.interval.ms: a pause would end it.",
        )
    return good(NAME, found)
