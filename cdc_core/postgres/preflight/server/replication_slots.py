"""Checks whether another slot can be created."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.postgres.preflight.statements import setting
from cdc_core.postgres.sqlstate import one_row, translated

NAME = "max_replication_slots"
_SPARE = 10


def check(context: Context) -> list[Finding]:
    """Run the check."""
    with translated("counting replication slots"):
        row = one_row(
            context.connection,
            "SELECT current_setting('max_replication_slots')::int, count(*), count(*) FILTER (WHERE slot_name = %s) "
            "FROM pg_replication_slots",
            (context.options.slot_name,),
        )
    return [verdict(row[0], row[1], bool(row[2]))]


def verdict(allowed: int, taken: int, ours_exists: bool) -> Finding:
    """``taken`` counts every slot of the server, including this connector's."""
    usage = f"{taken} of max_replication_slots = {allowed} are in use{', including this slot' if ours_exists else ''}."
    if not ours_exists and taken >= allowed:
        return bad(
            NAME,
            usage,
            "Drop an unused slot, or as a superuser run this and restart the server; of a managed service, change its "
            "parameter:",
            setting(NAME, str(taken + _SPARE)),
        )
    return good(NAME, usage)
