"""The changes of a slice as its changelog has them, read a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.rows.survey import check_inserts, in_order
from cdc_core.lake.schema.change_columns import SCHEMA_VERSION
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.schema_versions import by_schema_version, has_had_keys, in_force, of_one_key, unseen
from cdc_core.lake.stores.changelog import between, files_between, stream_changes

_PLACE = ("__commit_lsn", "__tx_index", SCHEMA_VERSION)


@dataclass(frozen=True, slots=True)
class SliceRows:
    """The changes of a changelog after the LSN ``merged`` up to the merge's, in stream order."""

    merge: Merge
    changelog: EpochRows
    merged: int

    @property
    def files(self) -> list[DataFile]:
        """The changelog's files that may have some of them."""
        return files_between(self.changelog, self.merged, self.merge.to_lsn)

    @property
    def bytes_at_most(self) -> int:
        """The bytes in memory of all changes in ``files``, by the files' footers: too low where values repeat."""
        return sum(self.changelog.changelog.bytes_in_memory(file) for file in self.files)

    @property
    def bytes_at_least(self) -> int:
        """The same without files that have other changes, too."""
        return sum(self.changelog.changelog.bytes_in_memory(file) for file in self.files if self._is_whole(file))

    def _is_whole(self, file: DataFile) -> bool:
        low, high = file.minimum.get("__commit_lsn", 0), file.maximum.get("__commit_lsn", self.merge.to_lsn + 1)
        is_only = self.changelog.is_only(file) and self.merge.snapshot.visible is None
        return is_only and low > self.merged and high <= self.merge.to_lsn

    def small(self, most_bytes: int) -> pa.Table | None:
        """Return all changes, in the changelog's columns, if they take at most so much memory; else None."""
        buffered: list[pa.Table] = []
        octets = 0
        for rows in stream_changes(self.changelog, self.merged, self.merge.to_lsn):
            buffered.append(rows)
            octets += rows.nbytes
            if octets > most_bytes:
                return None
        return pa.concat_tables(buffered) if buffered else self.changelog.schema.empty_table()

    @property
    def of_one_key(self) -> SliceRows:
        """The changes before the table's key changes, all of them if it does not, merged under that key."""
        if not has_had_keys(self.merge.schema):
            return self
        names = [name for name in _PLACE if name in self.changelog.schema.names]
        parts = [between(self.changelog.read(file, names), self.merged, self.merge.to_lsn) for file in self.files]
        every = in_order(pa.concat_tables([self.changelog.schema.empty_table().select(names), *parts]))
        return replace(self, merge=of_one_key(self.merge, by_schema_version(every))[0])

    def current(self, paths: Collection[str] = ()) -> Iterator[pa.Table]:
        """Yield the changes in the columns of the version in force; of all files, or of those with these ``paths``.

        Without those that the snapshot in force shows. Raises RereadNeededError as ``in_force`` does.
        """
        merge = self.merge
        schema: pa.Schema | None = None
        for batch in stream_changes(self.changelog, self.merged, merge.to_lsn, paths):
            versions = by_schema_version(unseen(batch, merge.snapshot.visible))
            if versions:
                rows = in_force(merge.schema, versions)
                schema = schema or rows.schema
                check_inserts(rows, merge.table.id)
                yield conform(rows, schema)
                del rows  # a row may be large, and would stay in memory while the next one is read
            octets = batch.nbytes
            del batch, versions
            release(octets)
