"""Locks tables while a snapshot reads them: by a custom snapshot mode's statement, or by snapshot.locking.mode."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres import SnapshotHolder
from cdc_core.schema import TableId
from cdc_core.snapshot.options import SnapshotLockingMode, SnapshotOptions


def lock_tables(holder: SnapshotHolder, tables: Sequence[TableId], options: SnapshotOptions) -> None:
    """Lock them until the holder is closed, if the options ask for it.

    Raises SourceError, TransientError if a lock is not granted in time, and ConfigError for an error of the class.
    """
    timeout_ms = options.snapshot_lock_timeout_ms
    own = None if options.custom is None else options.custom.locks(timeout_ms, tables)
    if own:
        holder.run(own)
    elif own is None and options.snapshot_locking_mode is SnapshotLockingMode.SHARED:
        holder.lock(tables, timeout_ms)
