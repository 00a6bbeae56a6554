"""Operation ``offsets``: what Debezium's connector needs to go on where wal2lake stands."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.kafka import stored_position
from cdc_core.assemble.start.continuity import Continuity
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.offsets import HandBack, offset_json
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableSchema

_FINISH = "Run wal2lake run with --until-idle 1, which completes it, and ask again."
_IDLE_PROGRESS = ("", "{}")


def offsets(context: RunContext, connector: str = "") -> HandBack:
    """Return the offset at which Debezium goes on.

    Raises InUseError while a run is active, and SourceError if what was written does not end at one LSN.
    """
    with context.claimed() as source:
        found = source.slot()
        slots.check_usable(found, context.config.postgres)
        if not found.exists or found.confirmed_lsn is None:
            raise SourceError(
                f"Replication slot {found.name} does not exist: Debezium would lack the changes since it was dropped.",
                "Let Debezium begin anew, with a snapshot.",
            )
        tables = context.lake_tables(source)
        lsn, xid, ts_us, notes = _end(context, source, tables, found.confirmed_lsn)
        notes.append(
            f"Keep slot {found.name}, the publication and topic.prefix as they are: Debezium uses them. Do not run "
            "wal2lake with this slot again, unless by wal2lake adopt."
        )
        name = connector or context.config.connector_name
        return HandBack(name, context.name, lsn, offset_json(lsn, xid, ts_us), tuple(notes))


def _end(
    context: RunContext, source: Source, tables: list[TableSchema], confirmed: Lsn
) -> tuple[Lsn, int | None, int | None, list[str]]:
    """Return where the stream ends that was written: an LSN, and the last transaction's id and commit time if known."""
    notes: list[str] = []
    lake = _end_of_lake(context, tables, confirmed) if context.has_lake else None
    if context.has_kafka:
        position = stored_position(context, source).now
        if position.in_snapshot or position.delivered or not position.lsn:
            raise SourceError("The events in Kafka do not end at a transaction's end yet.", _FINISH)
        if position.lsn < confirmed and lake is None:
            notes.append(
                f"Kafka has everything up to {position.lsn}; the slot is at {confirmed}, with no change between."
            )
        end = max(position.lsn, confirmed)
        if lake is not None and lake[0] > end:
            notes.append(f"The lake ends at {lake[0]}, Kafka at {end}: Debezium goes on where Kafka ends.")
        return end, None, None, notes
    if lake is None:
        raise SourceError(
            "wal2lake.sinks has neither lake nor kafka: nothing was written that Debezium could continue."
        )
    return (*lake, notes)


def _end_of_lake(context: RunContext, tables: list[TableSchema], confirmed: Lsn) -> tuple[Lsn, int | None, int | None]:
    proof = Continuity.of(context, tables)
    proof.require()
    record = proof.record
    if record is None or not record.confirmed:
        raise SourceError("The lake has no stream yet: there is nothing that Debezium could continue.")
    if proof.held.changelog_lsn >= record.confirmed:
        raise SourceError(
            f"A run was stopped before it confirmed what it had written: the lake has changes up to "
            f"{proof.held.changelog_lsn}, and has confirmed {record.confirmed}.",
            _FINISH,
        )
    last = record.last
    return max(record.confirmed, confirmed), None if last is None else last.xid, None if last is None else last.ts_us
