"""What follows when one table's slice could not be merged; the other tables are not delayed."""

from __future__ import annotations

from cdc_core.engine.round.table_state import MergeStates
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.engine.schema.reread_limit import RereadLimit
from cdc_core.engine.schema.trouble import trouble_of
from cdc_core.errors import (
    CdcError,
    ChangesRefusedError,
    MissingKeyError,
    RereadNeededError,
    StorageError,
    TransientError,
    UnreadableError,
)
from cdc_core.lake import LakePaths
from cdc_core.schema import PauseCause, TableId


def note_failure(
    table: TableId, error: CdcError, states: MergeStates, pauses: Pauses, paths: LakePaths, limit: RereadLimit
) -> None:
    """Pause the table, have it re-read, or leave it to the next attempt, depending on the error of its slice.

    Raises StorageError, which is not one of the table.
    """
    if isinstance(error, StorageError):
        # It concerns every table. The run waits and restarts at the durable position; no table is paused for it.
        raise error
    merge_state = states.of(table)
    has_failed_before = merge_state.failed_at is not None
    # After a re-read there is nothing to wait for.
    merge_state.failed(str(error), is_retried=not isinstance(error, RereadNeededError), of_slice=True)
    if isinstance(error, (ChangesRefusedError, MissingKeyError)):
        pauses.pause(table, PauseCause.CHANGES_REFUSED, error.message, error.remedy, merge_state.merged or 0)
    elif isinstance(error, RereadNeededError):
        pauses.want_reread(table, error.message)
        # Where the policy has paused it instead, a replay re-reads it: its changes would be refused again.
        pauses.require_reread(table, error.message)
        if error.remedy and not limit.allows(table):
            pauses.pause(table, PauseCause.REREAD_LIMIT, error.message, error.remedy, merge_state.merged or 0)
    elif isinstance(error, TransientError):
        # Another writer changed the table, so its merge state may be out of date.
        states.reload(table)
    elif isinstance(error, UnreadableError) and has_failed_before:
        # At the second attempt, because network storage may be unavailable for a moment.
        states.note_trouble(table, trouble_of(error, table, paths))
