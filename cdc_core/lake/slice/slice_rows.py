"""The changes of a slice as its changelog has them, read a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.row_groups import release
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.rows.survey import check_inserts
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.schema_versions import by_schema_version, key_of, keyed_slices, unseen
from cdc_core.lake.stores.changelog import files_between, stream_changes


class NotDivisibleError(Exception):
    """The key, or the columns, changed within the slice: it cannot be divided."""


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

    def current(self, paths: Collection[str] = ()) -> Iterator[pa.Table]:
        """Yield the changes in the columns of the version in force; of all files, or of those with these ``paths``.

        Without those that the snapshot in force shows. Raises NotDivisibleError, and RereadNeededError as
        ``keyed_slices`` does.
        """
        merge, views = self.merge, self.merge.schema.views
        keys = {key_of(merge.schema, merge.schema.schema_version)} if views else {0}
        schema: pa.Schema | None = None
        for batch in stream_changes(self.changelog, self.merged, merge.to_lsn, paths):
            versions = by_schema_version(unseen(batch, merge.snapshot.visible))
            keys |= {key_of(merge.schema, number) for number, _ in versions} if views else {0}
            if len(keys) > 1:
                raise NotDivisibleError
            for _, rows in keyed_slices(merge, versions):
                schema = schema or rows.schema
                if not rows.schema.equals(schema):
                    raise NotDivisibleError
                check_inserts(rows, merge.table.id)
                yield rows
                del rows  # a row may be large, and would stay in memory while the next one is read
            octets = batch.nbytes
            del batch, versions
            release(octets)
