"""Operation ``offsets``: what Debezium's connector needs to go on where wal2lake stands."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.errors import SourceError
from cdc_core.offsets import HandBack, offset_json
from cdc_core.postgres import slot as slots


def offsets(context: RunContext, connector: str = "") -> HandBack:
    """Return the offset at which Debezium goes on.

    Raises InUseError while a run is active, and SourceError if what was written does not end at one LSN.
    """
    with context.claimed() as source:
        slot = source.slot()
        slots.check_usable(slot, context.config.postgres)
        if not slot.exists or slot.confirmed_lsn is None:
            raise SourceError(
                f"Replication slot {slot.name} does not exist: Debezium would lack the changes since it was dropped.",
                "Let Debezium begin anew, with a snapshot.",
            )
        tables = context.named_tables(source)
        # Events are what Debezium goes on with: the last destination decides if there are several.
        *others, end = [destination.end(source, tables, slot.confirmed_lsn) for destination in context.destinations]
        notes = [
            f"The {other.name} ends at {other.lsn}, {end.name} at {end.lsn}: Debezium goes on where {end.name} ends."
            for other in others
            if other.lsn > end.lsn
        ]
        notes += [end.note] if end.note and not others else []
        notes.append(
            f"Keep slot {slot.name}, the publication and topic.prefix as they are: Debezium uses them. Do not run "
            "wal2lake with this slot again, unless by wal2lake adopt."
        )
        name = connector or context.config.connector_name
        return HandBack(name, context.name, end.lsn, offset_json(end.lsn, end.xid, end.ts_us), tuple(notes))
