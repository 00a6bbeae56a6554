"""Removes old changes from the changelog: after the merge they are needed as history only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.clock import DAY_US
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows, epoch_of, epochs_of, scope_of, slot_of
from cdc_core.lake.names import EPOCH
from cdc_core.lake.positions import changelog_app, expired_app, expired_to_app
from cdc_core.schema import TableId


def expire_changes(path: str, scope: str, table: TableId, merged: int | None, now_us: int, days: int) -> int | None:
    """Delete changes committed more than ``days`` before ``now_us``; returns the new Delta version, None for none.

    One commit, which contains the day, so that a second call on the same day does nothing, and the greatest LSN of a
    deleted change by epoch, so that a reader of changes notices that some are missing. Not deleted are:

    * changes after ``merged``, the commit LSN up to which the lake table is merged under its snapshot in force (None if
      nothing has been merged into it yet: then no change is deleted);
    * changes after the last complete transaction in it.

    Of changes of an earlier epoch (``epochs``), nothing is needed.

    Snapshot reads are copies of lake rows, so only their age counts. A ``txn`` records that they were appended, so they
    are not appended again. The commit removes entire files if possible and rewrites the others; VACUUM deletes them
    from storage. Raises TransientError after repeated conflicts with another writer.
    """
    changelog = DeltaTable.open(path)
    today = now_us // DAY_US
    app = expired_app(scope, table)
    if changelog is None or (changelog.txn(app) or -1) >= today:
        return None
    whole = changelog.txn(changelog_app(scope, table))
    upto = 0 if merged is None or whole is None else min(merged, whole)
    opened = changelog

    def attempt() -> int | None:
        removed: list[DataFile] = []
        added: list[DataFile] = []
        expired: dict[int, int] = {}
        for file, is_ordered in _oldest_first(opened, scope):
            if is_ordered and file.minimum["__commit_lsn"] > upto:
                break
            gone = _is_old(opened.read(file, _positions(opened)), upto, now_us - days * DAY_US, epoch_of(scope))
            if gone.any():
                rows = opened.read(file, opened.tracked_schema.names)
                removed.append(file)
                _note_expired(expired, rows.filter(pa.array(gone)))
                if not gone.all():
                    added.append(opened.write(rows.filter(pa.array(~gone))))
            elif is_ordered:
                break
        if not removed:
            return None
        meta = {"slot": scope, "retention": days}
        txns = {app: today, **_expired_to(opened, scope, table, expired)}
        return opened.commit(added, removed, txns=txns, metadata=meta)

    return on_conflict(attempt, opened)


def _oldest_first(changelog: DeltaTable, scope: str) -> list[tuple[DataFile, bool]]:
    """Return the files, and whether each has only changes of this epoch; these last, by their first LSN.

    Commits follow each other in time as in their LSNs, by seconds, so none after the first that is kept is to be read.
    """
    own = EpochRows.of(changelog, scope)
    entries = [(file, file.minimum.get("__tx_index", -1) >= 0 and own.is_only(file)) for file in changelog.files]
    return sorted(entries, key=lambda entry: (entry[1], entry[0].minimum.get("__commit_lsn", 0)))


def _positions(changelog: DeltaTable) -> list[str]:
    return [name for name in ("__commit_ts", "__commit_lsn", "__tx_index", EPOCH) if name in changelog.schema.names]


def _expired_to(changelog: DeltaTable, scope: str, table: TableId, expired: dict[int, int]) -> dict[str, int]:
    apps = {expired_to_app(scope_of(slot_of(scope), epoch), table): lsn for epoch, lsn in expired.items()}
    return {app: max(lsn, changelog.txn(app) or 0) for app, lsn in apps.items()}


def _note_expired(expired: dict[int, int], rows: pa.Table) -> None:
    """Note the greatest commit LSN of the changes among the rows, by epoch. Shape: table[N]"""
    epochs, lsns = epochs_of(rows), rows.column("__commit_lsn").to_numpy()
    is_change = rows.column("__tx_index").to_numpy() >= 0
    for epoch in np.unique(epochs[is_change]):
        greatest = int(lsns[is_change & (epochs == epoch)].max())
        expired[int(epoch)] = max(greatest, expired.get(int(epoch), 0))


def _is_old(rows: pa.Table, upto: int, before_us: int, epoch: int) -> Bools:
    """Return changes that may be deleted. Shape: table[N] -> bool[N]."""
    at = rows.column("__commit_ts").cast(pa.int64()).fill_null(before_us).to_numpy()
    is_read = rows.column("__tx_index").to_numpy() < 0
    is_past = epochs_of(rows) != epoch
    old: np.ndarray = (at < before_us) & (is_read | is_past | (rows.column("__commit_lsn").to_numpy() <= upto))
    return old
