"""Converts the server's errors at the start and in the course of a stream to CdcErrors."""

from __future__ import annotations

import re
from contextlib import suppress

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from cdc_core.errors import CdcError, ServerBusyError, SourceError
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import plugin_library
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.sqlstate import row_fault, server_error

# In the context of an error of the output plugin, in any language.
_LSN = re.compile(r"\b[0-9A-F]+/[0-9A-F]+\b")
# Where the server looks up publications, and slots.
_PUBLICATION, _SLOT = "get_publication_oid", "slot.c"


def start_error(error: psycopg.Error, options: PostgresOptions, connection: Connection) -> CdcError:
    """Return the error for a stream that the server refused to start, by the state of the slot."""
    refusal = plugin_library.load_error(error, connection, options.plugin_name.on_server)
    if refusal is not None:
        return refusal
    slot = slots.SlotInfo(options.slot_name)
    with suppress(CdcError):
        slot = slots.inspect(connection, options.slot_name)
    if isinstance(error, psycopg.errors.ObjectInUse):
        return slots.in_use(slot.name, slot.active_pid)
    if slot.is_lost:
        said = (error.diag.message_primary or "").rstrip(".")
        return SourceError(
            f"Slot {slot.name} can no longer be read: {said}.",
            f"Run SELECT pg_drop_replication_slot('{slot.name}') and take a new snapshot (wal2lake snapshot).",
        )
    return stream_error(error, options)


def stream_error(error: psycopg.Error, options: PostgresOptions) -> CdcError:
    """Return the CdcError for the server's error in the stream of the options' slot."""
    slot = options.slot_name
    if isinstance(error, psycopg.errors.UndefinedObject) and error.diag.source_function == _PUBLICATION:
        return SourceError(
            f'Publication "{options.publication_name}" did not exist when the changes in the slot were made.',
            f"Create it if it is missing, run SELECT pg_drop_replication_slot('{slot}'), and take a new snapshot "
            "(wal2lake snapshot): a publication must be older than the changes that it publishes.",
        )
    if isinstance(error, psycopg.errors.UndefinedObject) and error.diag.source_file == _SLOT:
        return SourceError(f"Slot {slot} does not exist.", "Take a snapshot: it creates the slot.")
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState | psycopg.errors.UndefinedFile):
        return SourceError(
            f"Slot {slot} cannot be read: {(error.diag.message_primary or '').rstrip('.')}.",
            "Correct this on the server, and run wal2lake check, which reports whether the slot lost WAL. Otherwise "
            "the slot keeps its position.",
        )
    fault = row_fault(error)
    if fault is not None:
        place = _LSN.search(error.diag.context or "")
        return SourceError(
            f"The server cannot send a change from slot {slot}{f' at LSN {place[0]}' if place else ''}: {fault}.",
            "Correct or delete the row in the source. The WAL keeps the old one, so no run can pass it: then run "
            f"SELECT pg_drop_replication_slot('{slot}') and wal2lake snapshot.",
        )
    return server_error(error, f"streaming from slot {slot}")


def end_of_copy(connection: PGconn, options: PostgresOptions) -> CdcError:
    """Return why the server ended the copy: an error, or none if it stops."""
    result = connection.get_result()
    if result is not None and result.status == ExecStatus.FATAL_ERROR:
        return stream_error(psycopg.errors.error_from_result(result, encoding="utf-8"), options)
    return ServerBusyError(
        "The server ended the stream: it is stopping or restarting.",
        "Run again once the server accepts connections.",
    )
