"""Appends rows of a batch to their table's changelog: spool files ─▶ decode ─▶ type ─▶ one commit.

Rows that the changelog has are dropped; the others are committed together with the position that they reach. So an
append may be repeated.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.errors import TransientError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.opened import keep, opened_to_commit
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.maintenance.compaction import maintain_briefly
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import changelog_position
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.shown import ShownByLake
from cdc_core.lake.rows.spool import ReadSpoolFiles
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.change_columns import stored, stored_schema
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.lake.slice.lake_tables import opened_existing
from cdc_core.lake.slice.order import SpoolFiles, WrittenFiles
from cdc_core.lake.slice.outcome import Stopwatch
from cdc_core.lake.slice.schema_versions import Decoded
from cdc_core.lake.stores.changelog import append_changes, commit_append
from cdc_core.schema import TableId


@dataclass(frozen=True, slots=True)
class Appended:
    """Rows that are durable in a changelog. ``rows``: as they were decoded, None if other tasks wrote them to files.

    ``wears``: the changelog's files are to be compacted beside the rounds.
    """

    count: int
    rows: list[Decoded] | None
    wears: bool = False


@dataclass(frozen=True, slots=True)
class ChangelogWriter:
    """Writes changelogs; picklable. ``owner`` is the run that the spool files belong to."""

    run: str
    scope: str
    paths: LakePaths
    plan: TypingPlan
    owner: Owner
    history_minutes: int

    def append(
        self, table: TableId, source: SpoolFiles | WrittenFiles, shown: ShownByLake, watch: Stopwatch
    ) -> Appended:
        """Commit rows of a batch; those that the lake table contains (``shown``) may be left out."""
        if isinstance(source, SpoolFiles):
            return self._append(table, source, shown, watch)
        with watch("append"):
            changelog = opened_existing(self.run, self.paths.changelog(table))
            self._commit(table, source, source.written, changelog)
            return Appended(sum(file.rows for file in source.written), None)

    def decoded(self, table: TableId, files: Sequence[tuple[int, str]], shown: ShownByLake) -> list[Decoded]:
        """Return the change rows of spool files in stream order, one table per run of files of one schema version."""
        versions, read = [], ReadSpoolFiles(self.plan, self.owner, str(table), shown)
        for schema_version, run in itertools.groupby(files, key=lambda file: file[0]):
            batches = list(read(tuple(path for _, path in run)))
            versions.append((schema_version, pa.Table.from_batches(batches)))
        return versions

    def changelog(self, table: TableId, versions: Sequence[Decoded]) -> DeltaTable:
        """Create or widen the changelog of a table so that it has every column of the versions (at least one)."""
        first, *others = versions
        changelog = self._widened(table, opened_to_commit(self.run, self.paths.changelog(table)), first)
        for version in others:
            changelog = self._widened(table, changelog, version)
        return keep(self.run, changelog)

    def _widened(self, table: TableId, changelog: DeltaTable | None, version: Decoded) -> DeltaTable:
        schema_version, rows = version
        before = None if changelog is None else changelog.schema
        schema = stored_schema(rows.schema, schema_version, before, epoch_of(self.scope))
        properties = changelog_properties(self.history_minutes)
        return ensure_table(self.paths.changelog(table), schema, table, properties, changelog)

    def stored(self, changelog: DeltaTable, schema_version: int, rows: pa.Table) -> pa.Table:
        """Return decoded rows in the columns of the changelog."""
        return stored(rows, schema_version, changelog.schema, epoch_of(self.scope))

    def _append(self, table: TableId, source: SpoolFiles, shown: ShownByLake, watch: Stopwatch) -> Appended:
        with watch("decode"):
            versions = self.decoded(table, source.files, shown)
        with watch("append"):
            changelog = self.changelog(table, versions)
            since = changelog.version
            rows = pa.concat_tables(
                [self.stored(changelog, schema_version, changes) for schema_version, changes in versions]
            )
            count = append_changes(changelog, rows, self.scope, table, source.reached)
            if not rows.num_rows:  # all of them were left out: the position that they reach is stored nevertheless
                self._commit(table, source, (), changelog)
        with watch("compact"):
            wears = maintain_briefly(changelog, since, self.history_minutes)
        return Appended(count, versions, wears)

    def _commit(
        self, table: TableId, source: SpoolFiles | WrittenFiles, files: Sequence[DataFile], changelog: DeltaTable
    ) -> None:
        """Commit files; raises TransientError unless they start at the end of the changelog."""

        def attempt() -> None:
            stands = changelog_position(changelog, self.scope, table)
            if (None if stands is None else tuple(stands)) != source.position:
                changelog.refresh()  # it was only expected to be the newest version
                stands = changelog_position(changelog, self.scope, table)
            if (None if stands is None else tuple(stands)) != source.position:
                raise TransientError(
                    f"Another writer appended to the changelog of {table} concurrently.",
                    "No position of this batch was confirmed; run again.",
                )
            commit_append(changelog, files, self.scope, table, source.reached)

        on_conflict(attempt, changelog)
