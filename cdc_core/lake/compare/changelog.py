"""Whether a changelog is whole: no position is in it twice, and its changes, folded, give the lake table's rows.

Only keys that it has changes of since the snapshot in force are folded: others are not judged. In mode history
it must lead to the versions, too (``versions``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.errors import LakeError, NotComparableError
from cdc_core.lake.compare.between import stored_changes
from cdc_core.lake.compare.differences import ChangelogFound, KeyList
from cdc_core.lake.compare.judge import after_truncate, touched_keys
from cdc_core.lake.compare.key_texts import key_list
from cdc_core.lake.compare.lake_side import LakeSide
from cdc_core.lake.compare.rows import KeyedColumns
from cdc_core.lake.compare.target import Target
from cdc_core.lake.compare.versions import wrong_versions
from cdc_core.lake.delete_columns import CURRENT, POSITION
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import expired_app, has_rows_of_changes
from cdc_core.lake.reduce.key_changes import without_refused
from cdc_core.lake.reduce.latest import reduce_slice
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.lake.rows.survey import hidden
from cdc_core.lake.stores.changelog import read_changes, read_positions
from cdc_core.lake.stores.quarantine import refused_among, refused_reads

_POSITION = POSITION[:2]


@dataclass(frozen=True, slots=True)
class ChangelogCheck:
    """The check of the changelogs that are not larger than ``most_bytes``. ``limit``: how many keys are named."""

    paths: LakePaths
    scope: str
    limit: int
    most_bytes: int

    def of(self, target: Target) -> ChangelogFound | None:
        """Return the differences in a table's changelog, None if it is too large to be read. Raises LakeError."""
        files = () if target.changelog is None else target.changelog.files
        if sum(file.size for file in files) > self.most_bytes:
            return None
        return check_changelog(target, self.paths, self.scope, self.limit, self.most_bytes)


def check_changelog(target: Target, paths: LakePaths, scope: str, limit: int, most_bytes: int) -> ChangelogFound:
    """Check the changelog of the present epoch, and in mode history the versions of a table up to ``most_bytes``.

    Raises LakeError.
    """
    changelog = target.changelog
    if changelog is None:
        _require_none(target)
        return ChangelogFound()
    rows = EpochRows.of(changelog, scope)
    events = _positions(rows)
    doubled = int(np.count_nonzero((np.diff(events[:, 0]) == 0) & (np.diff(events[:, 1]) == 0)))
    result = ChangelogFound(len(events), doubled)
    if changelog.txn(expired_app(scope, target.table.id)) is not None:
        return replace(result, reason="old changes were removed from it")
    compared = target.compared
    if not isinstance(compared, KeyedColumns):
        return replace(result, reason="the table has no key")
    quarantine = DeltaTable.open(paths.quarantine(target.table.id))
    try:
        changes = _merged_changes(target, rows)
        result = replace(result, keys=_wrong_keys(target, compared, rows, changes, quarantine, limit))
    except NotComparableError as error:
        return replace(result, reason=error.message)
    if CURRENT not in target.lake.schema.names or sum(file.size for file in target.lake.files) > most_bytes:
        return result
    refused = _sorted_positions([] if quarantine is None else map(quarantine.read, quarantine.files))
    wrong = wrong_versions(target.lake, compared, changes, events, target.version.read_at, refused)
    return replace(result, versions=key_list(wrong.keys, compared.key, limit), removed=wrong.removed)


def _require_none(target: Target) -> None:
    """Raise LakeError if the lake table has a row of a change: then it should have a changelog."""
    if has_rows_of_changes(target.lake):
        raise LakeError(
            f"The changelog of {target.table.id} no longer exists, but its lake table has rows of changes.",
            f"Restore it, or run wal2lake snapshot with {target.table.id}.",
        )


def _positions(rows: EpochRows) -> np.ndarray:
    """Return the positions of all changes, in order. Shape: int64[N, 2]"""
    return _sorted_positions(rows.read(file, list(_POSITION)) for file in rows.files)


def _sorted_positions(tables: Iterable[pa.Table]) -> np.ndarray:
    parts = [np.stack([table.column(name).to_numpy() for name in _POSITION], axis=1) for table in tables]
    every = np.concatenate([np.zeros((0, 2), dtype=np.int64), *parts])
    every = every[every[:, 1] >= 0]
    return every[np.lexsort((every[:, 1], every[:, 0]))]


def _merged_changes(target: Target, rows: EpochRows) -> pa.Table:
    """Return the changes since the snapshot in force that are merged. Raises NotComparableError."""
    version = target.version
    changes = read_changes(rows, 0, version.place.merged)
    if version.visible is not None:
        changes = changes.filter(pa.array(hidden(changes, version.visible)))
    return stored_changes(changes, target.typer, version.schema_version)


def _wrong_keys(
    target: Target,
    compared: KeyedColumns,
    stored: EpochRows,
    changes: pa.Table,
    quarantine: DeltaTable | None,
    limit: int,
) -> KeyList:
    """Return the keys whose row is not the last state that the changes give it.

    Keys whose row was refused when it was read are not judged: the lake has no row of them since.
    """
    version, key = target.version, compared.key
    reads = None
    if quarantine is not None:
        token = version.place.merge_token
        changes = without_refused(changes, refused_among(changes, quarantine, token), key.names, compared.schema)
        reads = read_positions(stored, refused_reads(quarantine, token))
        reads = stored_changes(reads, target.typer, version.schema_version)
    changes, _ = after_truncate(changes)
    if not changes.num_rows:
        return KeyList()
    made = reduce_slice(changes, key.names, compared.schema)
    keys = compared.keys_of(made.keys)
    lake = LakeSide(target.lake, compared).of_keys(keys, compared)
    index, _ = KeyIndex.of(key, keys)
    at = index.match(compared.keys_of(lake))
    row_counts = np.bincount(at, minlength=keys.num_rows)
    known = np.ones(keys.num_rows, dtype=bool)
    for mask in made.keep.values():
        known &= ~mask  # a column whose value is the snapshot's
    expected = compared.digests(compared.conformed(made.rows))
    equal = np.zeros(keys.num_rows, dtype=bool)
    equal[at[compared.digests(lake) == expected[at]]] = True
    wrong = (row_counts != np.where(made.deleted, 0, 1)) | (known & ~made.deleted & ~equal)
    if reads is not None and reads.num_rows:
        wrong &= ~touched_keys(reads, keys, compared)
    return key_list(keys.filter(pa.array(wrong)), key, limit)
