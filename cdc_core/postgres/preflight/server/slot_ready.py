"""Checks whether this connector can use the slot."""

from __future__ import annotations

from cdc_core.errors import CdcError, TransientError
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.preflight.statements import drop_slot
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.slot import SlotInfo

NAME = "slot"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return [verdict(slot.inspect(context.connection, context.options.slot_name), context.options)]


def verdict(info: SlotInfo, options: PostgresOptions) -> Finding:
    """A slot in use is only a warning: it may be used by this connector's own run."""
    if not info.exists:
        return good(NAME, f"Slot {info.name} does not exist; it is created at start.")
    try:
        slot.check_usable(info, options)
    except TransientError as error:
        return doubtful(NAME, error.message, error.remedy)
    except CdcError as error:
        return bad(NAME, error.message, error.remedy, *((drop_slot(info.name),) if info.is_lost else ()))
    if info.wal_status == "unreserved":
        return doubtful(
            NAME,
            f"Slot {info.name} is past max_slot_wal_keep_size and may be lost at the next checkpoint.",
            "Read it now, and raise max_slot_wal_keep_size.",
        )
    return good(NAME, f"Slot {info.name} is free, confirmed up to {info.confirmed_lsn}.")
