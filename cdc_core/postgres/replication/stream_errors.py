"""Why a stream could not begin or has ended: the server's errors as ours."""

from __future__ import annotations

import re

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from cdc_core.errors import CdcError, ServerBusyError, SourceError
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import slot as slots
from cdc_core.postgres.sqlstate import row_fault, server_error

# In the context of an error of the output plugin, in any language.
_LSN = re.compile(r"\b[0-9A-F]+/[0-9A-F]+\b")


def stream_error(error: psycopg.Error, options: PostgresOptions) -> CdcError:
    """Return the server's error in the stream of the options' slot as one of ours."""
    slot, text = options.slot_name, error.diag.message_primary or ""
    if isinstance(error, psycopg.errors.ObjectInUse):
        pid = "".join(character for character in text.rpartition("PID")[2] if character.isdecimal())
        return slots.in_use(slot, int(pid) if pid else None)
    if isinstance(error, psycopg.errors.UndefinedObject) and "publication" in text:
        return SourceError(
            f'Publication "{options.publication_name}" did not exist when the changes in the slot were made.',
            "Create it, drop the slot, and take a new snapshot: a publication must be older than what it publishes.",
        )
    if isinstance(error, psycopg.errors.UndefinedObject):
        return SourceError(f"Slot {slot} does not exist.", "Take a snapshot: it creates the slot.")
    if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState | psycopg.errors.UndefinedFile):
        return SourceError(
            f"Slot {slot} can no longer be read: {text.rstrip('.')}.",
            f"Run SELECT pg_drop_replication_slot('{slot}') and take a new snapshot.",
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
