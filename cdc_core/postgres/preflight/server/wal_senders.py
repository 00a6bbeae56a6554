"""Checks whether a WAL sender is available."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.preflight.statements import setting
from cdc_core.postgres.sqlstate import one_row, translated

NAME = "max_wal_senders"
_SPARE = 10
_RAISE = "as a superuser run this and restart the server; of a managed service, change its parameter:"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    with translated("counting WAL senders"):
        row = one_row(
            context.connection,
            "SELECT current_setting('max_wal_senders')::int, count(*) FROM pg_stat_activity "
            "WHERE backend_type = 'walsender'",
        )
    return [verdict(row[0], row[1])]


def verdict(allowed: int, taken: int) -> Finding:
    """``taken`` counts the active ones. Two are needed for a short time: one creates the slot, one streams."""
    found = f"{taken} of max_wal_senders = {allowed} are in use."
    if taken >= allowed:
        return bad(NAME, found, f"Stop another consumer, or {_RAISE}", setting(NAME, str(taken + _SPARE)))
    if allowed - taken < 2:
        return doubtful(NAME, found, f"None is left after this connector: {_RAISE}", setting(NAME, str(taken + _SPARE)))
    return good(NAME, found)
