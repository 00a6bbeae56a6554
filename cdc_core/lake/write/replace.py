"""Replaces the lake table's entire content by a snapshot's rows, in one commit.

The rows are written by many tasks, each to its own files (``write_rows``); the commit adds them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from cdc_core.errors import InvariantError
from cdc_core.lake.apply.kept_rows import check_modes, commit_merged, keeps_rows, merged
from cdc_core.lake.apply.next_content import KeptRows
from cdc_core.lake.delete_columns import as_live, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import conform, plain_schema
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.readable import open_own
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.positions import (
    check_epoch,
    content_epoch,
    epoch_app,
    former_merges,
    lake_position,
    merge_app,
    schema_version_app,
    snapshot_app,
)
from cdc_core.lake.schema.features import require_writable
from cdc_core.lake.schema.lake_schema import check_names, lake_properties, spread
from cdc_core.schema import TableId

_FILE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class SnapshotCommit:
    """The commit that made the snapshot the table's content."""

    version: int
    rows: int


def prepare(path: str, schema: pa.Schema, table: TableId, history_minutes: int) -> DeltaTable:
    """Return the lake table, created empty if it does not exist; an existing one is not changed before the commit.

    Raises TableError for names that Delta cannot distinguish, UnreadableError for a table of another program.
    """
    check_names(schema, table)
    properties = spread(lake_properties(history_minutes), path)
    return open_own(path) or DeltaTable.create(path, plain_schema(schema), properties)


def write_rows(lake: DeltaTable, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> list[DataFile]:
    """Write lake rows to new files of about a million rows; ``commit_snapshot`` adds them to the table."""
    content, mode = plain_schema(schema), mode_of(schema.names)
    if mode is not DeleteMode.HARD:
        batches = (made for batch in batches for made in _live(batch, mode, content).to_batches())
    return lake.write_stream(batches, content, _FILE_ROWS, name="snapshot")


def _live(batch: pa.RecordBatch, mode: DeleteMode, schema: pa.Schema) -> pa.Table:
    return conform(as_live(pa.Table.from_batches([batch]), mode), schema)


def commit_snapshot(
    lake: DeltaTable,
    files: Sequence[DataFile],
    schema: pa.Schema,
    scope: str,
    table: TableId,
    *,
    token: int,
    schema_version: int = 0,
    facts: Mapping[str, str | int] | None = None,
    kept: KeptRows | None = None,
) -> SnapshotCommit:
    """Replace the lake table's content and schema by ``files``, and put ``token`` in force, in one commit.

    The rows' ``__commit_lsn`` must not be greater than that of any change that the snapshot does not show. ``token``
    must be greater than the one in force: this also invalidates the merges of the former snapshot. ``schema_version``
    is the number of the table's version under which the rows were read (``stores/schema_log``), 0 for none. ``facts``
    are added to the commit's metadata. Commits made to the table since it was opened are replaced too. If
    the delete mode keeps rows, ``kept`` defines which rows the snapshot does not show (``kept_rows``); rows of an
    earlier epoch are before the snapshot, whatever their LSNs are. A run of an earlier epoch cannot commit after this.
    Raises InvariantError for a token that is not greater, TransientError after eight conflicts with other writers.
    """
    content = plain_schema(schema)

    def attempt() -> int:
        require_writable(lake, table)
        check_epoch(lake, scope, table)
        shown = lake_position(lake, scope, table)
        if shown.token is not None and token <= shown.token:
            raise InvariantError(f"Snapshot {token} of {table} is not newer than the current snapshot {shown.token}.")
        # The former merges' id is set to its current version, so that a merge into the former content conflicts,
        # whichever of the two commits is first. Otherwise its rows would be added to the snapshot's.
        txns = {merge_app(scope, table, shown.merge_token): shown.merged, snapshot_app(scope, table): token}
        epoch = epoch_of(scope)
        passed = max(0, epoch - content_epoch(lake, table))
        if passed:
            # A run of an earlier epoch may still be active: its merges conflict, and find the epoch (``check_epoch``).
            txns |= former_merges(lake, scope, table)
        if epoch:
            txns[epoch_app(table)] = epoch
        if schema_version:
            txns[schema_version_app(scope, table)] = schema_version
        meta = {"slot": scope, "snapshot": token, **(facts or {})}
        if kept is not None and keeps_rows(lake, content):
            check_modes(lake.schema, content, table)
            mine = replace(kept, epochs=passed)
            return commit_merged(lake, merged(lake, files, content, mine), kept.key, txns, meta)
        return lake.commit(files, txns=txns, metadata=meta, schema=content, replace=True)

    lake.refresh()
    version = on_conflict(attempt, lake)
    return SnapshotCommit(version, sum(file.rows for file in files))
