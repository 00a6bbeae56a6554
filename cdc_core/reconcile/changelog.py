"""Whether a changelog is whole: no position is in it twice, and its changes, folded, give the lake table's rows.

Only keys that it has changes of since the snapshot in force are folded: of the others it says nothing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.errors import NotComparableError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import expired_app
from cdc_core.lake.reduce.latest import reduce_slice
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.lake.rows.survey import hidden
from cdc_core.lake.stores.changelog import read_changes
from cdc_core.lake.stores.quarantine import refused_among
from cdc_core.reconcile.between import stored_changes
from cdc_core.reconcile.judge import after_truncate
from cdc_core.reconcile.key_texts import key_list
from cdc_core.reconcile.lake_side import LakeSide
from cdc_core.reconcile.reports import ChangelogFound, KeyList
from cdc_core.reconcile.target import Target


def changelog_bytes(target: Target) -> int:
    """Return the size of a table's changelog."""
    return 0 if target.changelog is None else sum(file.size for file in target.changelog.files)


def check_changelog(target: Target, paths: LakePaths, scope: str, limit: int) -> ChangelogFound:
    """Check the changelog of the present epoch. Raises LakeError."""
    changelog = target.changelog
    if changelog is None:
        return ChangelogFound()
    rows = EpochRows.of(changelog, scope)
    count, doubled = _positions(rows)
    if changelog.txn(expired_app(scope, target.table.id)) is not None:
        return ChangelogFound(count, doubled, reason="old changes were removed from it")
    if target.compared.key is None:
        return ChangelogFound(count, doubled, reason="the table has no key")
    try:
        return ChangelogFound(count, doubled, _wrong_keys(target, paths, rows, limit))
    except NotComparableError as error:
        return ChangelogFound(count, doubled, reason=error.message)


def _positions(rows: EpochRows) -> tuple[int, int]:
    """Return the number of changes, and of those whose position is that of another."""
    parts = [rows.read(file, ["__commit_lsn", "__tx_index"]) for file in rows.files]
    if not parts:
        return 0, 0
    every = pa.concat_tables(parts)
    lsn, index = (every.column(name).to_numpy() for name in ("__commit_lsn", "__tx_index"))
    lsn, index = lsn[index >= 0], index[index >= 0]
    order = np.lexsort((index, lsn))
    same = (np.diff(lsn[order]) == 0) & (np.diff(index[order]) == 0)
    return len(lsn), int(np.count_nonzero(same))


def _wrong_keys(target: Target, paths: LakePaths, rows: EpochRows, limit: int) -> KeyList:
    """Return the keys whose row is not the last state that the changes give it."""
    compared, version = target.compared, target.version
    key = compared.key
    assert key is not None
    found = read_changes(rows, 0, version.place.merged)
    if version.visible is not None:
        found = found.filter(pa.array(hidden(found, version.visible)))
    quarantine = DeltaTable.open(paths.quarantine(target.table.id))
    if quarantine is not None:
        found = found.filter(pa.array(~refused_among(found, quarantine, version.place.merge_token)))
    changes, _ = after_truncate(stored_changes(found, target.typer, version.shape))
    if not changes.num_rows:
        return KeyList()
    made = reduce_slice(changes, key.names, compared.schema)
    keys = made.keys.select(key.read).combine_chunks()
    lake = LakeSide(target.lake, compared).of_keys(keys)
    index, _ = KeyIndex.of(key, keys)
    at = index.match(lake.select(key.read).combine_chunks())
    held = np.bincount(at, minlength=keys.num_rows)
    known = np.ones(keys.num_rows, dtype=bool)
    for mask in made.keep.values():
        known &= ~mask  # a column whose value is the snapshot's
    wanted = compared.digests(compared.conformed(made.rows))
    equal = np.zeros(keys.num_rows, dtype=bool)
    equal[at[compared.digests(lake) == wanted[at]]] = True
    wrong = (held != np.where(made.deleted, 0, 1)) | (known & ~made.deleted & ~equal)
    return key_list(keys.filter(pa.array(wrong)), key, limit)
