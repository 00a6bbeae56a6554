"""Writes rows of chunks to a lake table, in a Spark task: staged rows ─▶ changes made since ─▶ one commit.

``lake/apply/chunk_rows`` describes which rows are written, and why the result is exact. Like a merge, the commit
requires the snapshot in force and the merged LSN to be unchanged, so that it fails if another commit was made first. It
may be repeated: writing rows again that were already written does not change them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.errors import CdcError, LakeError, RereadNeededError, TransientError
from cdc_core.lake.apply.changes import Changes
from cdc_core.lake.apply.chunk_rows import ChunkRows, key_texts, moved_unsent
from cdc_core.lake.chunks.chunk_file import ChunkFile
from cdc_core.lake.chunks.gate import ChunkGate
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.maintenance.compaction import maintain_after
from cdc_core.lake.positions import lake_position
from cdc_core.lake.reduce.key_changes import without_refused
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.survey import hidden
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.outcome import Applied
from cdc_core.lake.slice.schema_versions import by_schema_version, in_force, of_one_key
from cdc_core.lake.slice.task import SliceTask
from cdc_core.lake.stores.changelog import read_changes
from cdc_core.lake.stores.quarantine import refused_among
from cdc_core.lake.stores.snapshot_events import append_chunk
from cdc_core.lake.stores.staged_rows import read_staged
from cdc_core.schema import DeltaFeature, Key, TableId, TableSchema

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChunkOrder:
    """``target`` is the table, merged up to its ``to_lsn``; ``chunks`` are in reading order.

    ``staged`` is the file of staged rows that they are in; None if each has a file of its own.

    ``scanned``: changes up to this LSN have already been searched for moved rows with TOAST values that were not sent.
    ``reached`` is the end of WAL after the chunks were read, ``ordinal`` is None if their rows are not appended to the
    changelog.
    """

    target: Merge
    chunks: tuple[ChunkFile, ...]
    scanned: int
    reached: int
    ordinal: int | None = None
    staged: DataFile | None = None


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """The result. ``rest`` are the keys to be read again, None if they cannot be converted to text.

    ``applied`` was committed, None without chunks. ``enabled`` and ``marks`` as of ``SliceOutcome``. ``refused`` rows
    were quarantined instead; ``reasons`` is how many of them fail each rule.
    """

    table: TableId
    rest: tuple[Key, ...] | None = ()
    applied: Applied | None = None
    error: CdcError | None = None
    enabled: frozenset[DeltaFeature] = frozenset()
    marks: bool = False
    refused: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChunkTask:
    """Writes the chunks of one table to the lake; picklable."""

    slices: SliceTask

    def __call__(self, order: ChunkOrder) -> ChunkOutcome:
        """Write the chunks; errors are returned in the outcome."""
        failpoints.adopt(self.slices.armed)
        table = order.target.table.id
        try:
            return self._apply(order)
        except CdcError as error:
            return ChunkOutcome(table, error=error)
        except Exception as error:
            _log.exception("Rows of %s could not be written to the lake.", table)
            made = LakeError(
                f"Rows read from {table} could not be written to its lake table ({type(error).__name__}).",
                "They will be re-read; please report this.",
            )
            return ChunkOutcome(table, error=made)

    def _apply(self, order: ChunkOrder) -> ChunkOutcome:
        slices, target, table = self.slices, order.target, order.target.table
        path = slices.paths.lake(table.id)
        prepared = slices.tables.prepare(slices.run, path, target.schema, slices.plan, slices.scope)
        lake, marked = prepared.lake, prepared.lake.marks_rows
        self._check(lake, target)
        chunks = self._rows(order)
        changes = self._changes(order)
        since = lake.version
        # Also changes that were searched before and that a chunk does not show: if it was read to find the row at such
        # a key, it was read too early. A commit may be in the stream long before snapshots show it.
        rest = self._texts(moved_unsent(changes, table.row_key, lake.schema), table)
        if order.ordinal is not None and chunks:
            self._keep_events(chunks, order, order.ordinal)
        if not chunks:
            return ChunkOutcome(table.id, rest, enabled=prepared.enabled)
        gate = ChunkGate(slices, target, lake)
        admitted = gate.admit(chunks, self._merged(changes, target, lake))
        if admitted.refused:
            failpoints.hit(failpoints.AFTER_QUARANTINE)
        lake_changes = admitted.states.changes(leaves_equal=lake.definition.shows_changes)
        done = on_conflict(lambda: self._write(lake, target, lake_changes), lake)
        gate.settle(admitted)
        maintain_after(lake, since, slices.writer.history_minutes, table.row_key)
        marks = lake.marks_rows and not marked
        return ChunkOutcome(
            table.id,
            rest,
            done,
            enabled=prepared.enabled,
            marks=marks,
            refused=admitted.refused,
            reasons=admitted.reasons,
        )

    def _rows(self, order: ChunkOrder) -> list[ChunkRows]:
        """Return the rows of the order's chunks."""
        slices, table = self.slices, order.target.table.id
        if order.staged is None:
            return [_rows_of(chunk, slices.writer.owner, table) for chunk in order.chunks]
        places = [chunk.place for chunk in order.chunks if chunk.place is not None]
        rows = read_staged(slices.paths.staged, order.staged, places) if places else []
        return [ChunkRows(staged_rows, chunk.visible) for staged_rows, chunk in zip(rows, order.chunks, strict=True)]

    def _merged(self, changes: pa.Table, target: Merge, lake: DeltaTable) -> pa.Table:
        """Return the changes that are in the lake table, without what was refused."""
        quarantine = DeltaTable.open(self.slices.paths.quarantine(target.table.id))
        if quarantine is None:
            return changes
        refused = refused_among(changes, quarantine, target.snapshot.token)
        return without_refused(changes, refused, target.table.row_key, lake.schema)

    def _write(self, lake: DeltaTable, target: Merge, changes: Changes) -> Applied:
        self._check(lake, target)
        return self.slices.writer.write_chunks(lake, target, changes, self.slices.scope)

    def _check(self, lake: DeltaTable, target: Merge) -> None:
        """Raise TransientError if the lake table is not at the position that the driver knew.

        Chunk rows are valid only at that position.
        """
        stands = lake_position(lake, self.slices.scope, target.table.id)
        if stands.merge_token != target.snapshot.token or stands.merged > target.to_lsn:
            raise TransientError(
                f"The lake table of {target.table.id} was changed by another run.", "The rows will be re-read."
            )

    def _changes(self, order: ChunkOrder) -> pa.Table:
        """Return the changes up to the order's LSN that the oldest chunk does not show, or not yet searched for moves.

        They are in the columns of the schema version in force.
        """
        target = order.target
        schema = self.slices.plan.typer(target.table).change_schema
        changelog = opened(self.slices.run, self.slices.paths.changelog(target.table.id))
        if changelog is None:
            return schema.empty_table()
        low = min([order.scanned, *(chunk.floor for chunk in order.chunks)])

        def needed(rows: pa.Table) -> pa.Table:
            late = rows.column("__commit_lsn").to_numpy() > order.scanned
            for chunk in order.chunks[:1]:
                late |= hidden(rows, chunk.visible)
            return rows if late.all() else rows.filter(pa.array(late))

        change_rows = read_changes(EpochRows.of(changelog, self.slices.scope), low, target.to_lsn, needed)
        versions = by_schema_version(change_rows)
        if len(of_one_key(target, versions)[1]) < len(versions):
            raise RereadNeededError(
                f"The key of {target.table.id} changed while its rows were read.", "They will be re-read."
            )
        return in_force(target.schema, versions) if versions else schema.empty_table()

    def _texts(self, keys: pa.Table, table: TableSchema) -> tuple[Key, ...] | None:
        """Return keys that are to be read again as text, None if that is not possible."""
        key = table.row_key
        if not keys.num_rows:
            return ()
        # The row of the source cannot be found by a hashed key.
        masked = {plan.name for plan in self.slices.plan.typer(table).plans if plan.mapper is not None}
        texts = None if masked & set(key) else key_texts(keys, key)
        return None if texts is None else tuple(texts)

    def _keep_events(self, chunks: Sequence[ChunkRows], order: ChunkOrder, ordinal: int) -> None:
        slices, target = self.slices, order.target
        append_chunk(
            slices.paths.changelog(target.table.id),
            pa.concat_tables([chunk.rows for chunk in chunks]),
            slices.scope,
            target.table.id,
            schema_version=target.schema.schema_version,
            lsn=order.reached,
            ordinal=ordinal,
            history_minutes=slices.writer.history_minutes,
        )


def _rows_of(chunk: ChunkFile, owner: Owner, table: TableId) -> ChunkRows:
    gone = _read(chunk.gone, owner, table) if chunk.gone else None
    return ChunkRows(_read(chunk.path, owner, table), chunk.visible, gone)


def _read(path: str, owner: Owner, table: TableId) -> pa.Table:
    try:
        source = pa.OSFile(path, "rb")
    except OSError:
        raise TransientError("A file of snapshot rows no longer exists.", "They will be re-read.") from None
    with source, pa.ipc.open_file(source) as reader:
        owner.check(reader.schema.metadata, path, str(table))
        return reader.read_all().replace_schema_metadata(None)
