"""Delta's change data feed: the rows that a commit inserts, updates and deletes, in separate files.

Readers of a feed take these files for the commit's changes, and not the data files, of which a rewritten one has the
rows that did not change as well. What changed follows from the rows that the commit takes away and from those that it
adds: rows that are equal in every column stay, and of the others those of one key are a row before and after an update.
In a history table that key is the version of a row: to end it is an update.

Delta asks for such files only where rows are updated. Here a commit of inserts has them, too: data files are replaced
by compactions, and readers of a feed that come later than their retention would miss the rows.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.lake.apply.paired_parts import PART_BYTES, PairedParts
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.feed_rows import INSERT, RowIdentity, of_kind, row_changes

_READ_BYTES = 8 << 20


def change_files(
    lake: DeltaTable,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    marked: Sequence[MarkedRows],
    key: Sequence[str],
    at_hand: Mapping[str, pa.Table] = MappingProxyType({}),
) -> list[DataFile] | None:
    """Write the changes of a commit, or of a part of one with all rows of some keys, to files.

    ``added``, ``removed`` and ``marked`` as for ``DeltaTable.commit``. ``at_hand``: the rows of added files that are in
    memory, by their paths. Without a key an update is a delete and an
    insert. None if the table has no feed; no files if no row differs.
    """
    if not lake.definition.feeds_changes:
        return None
    new = _new_rows(lake, added, at_hand)
    if not (removed or marked):
        return _written(lake, (of_kind(rows, INSERT) for rows in new), lake.schema)
    return _differences(lake, _old_rows(lake, removed, marked), new, lake.schema, key)


def replacement_files(
    lake: DeltaTable,
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    schema: pa.Schema,
    adapted: Callable[[pa.Table], pa.Table],
    key: Sequence[str],
) -> list[DataFile] | None:
    """As ``change_files``, for a commit that puts ``schema`` in force.

    ``adapted`` converts rows of the table to ``schema``.
    """
    if not lake.definition.feeds_changes:
        return None
    new = (rows for file in added for rows in lake.batches_as(file, schema))
    return _differences(lake, map(adapted, _rows(lake, removed)), new, schema, key)


def _differences(
    lake: DeltaTable, old: Iterable[pa.Table], new: Iterable[pa.Table], schema: pa.Schema, key: Sequence[str]
) -> list[DataFile]:
    identity = RowIdentity.of(schema, key)

    def changes() -> Iterator[pa.Table]:
        with ExitStack() as stack:
            parts = PairedParts(lambda: _folder(stack), schema, PART_BYTES)
            for is_new, tables in ((False, old), (True, new)):
                for rows in tables:
                    parts.add(rows, identity.columns(rows), is_new=is_new)
            for before, after in parts:
                yield row_changes(before, after, identity)

    return _written(lake, changes(), schema)


def _folder(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wal2lake-")))


def _written(lake: DeltaTable, changes: Iterable[pa.Table], schema: pa.Schema) -> list[DataFile]:
    files = lake.write_changes(itertools.chain.from_iterable(rows.to_batches() for rows in changes), schema)
    failpoints.hit(failpoints.AFTER_CHANGES)
    return files


def _old_rows(lake: DeltaTable, removed: Sequence[DataFile], marked: Sequence[MarkedRows]) -> Iterator[pa.Table]:
    yield from _rows(lake, removed)
    for marks in marked:
        rows = max(1, _READ_BYTES * lake.row_count(marks.file) // max(1, lake.bytes_in_memory(marks.file)))
        for start in range(0, len(marks.places), rows):
            yield lake.read_at(marks.file, marks.places[start : start + rows])


def _new_rows(lake: DeltaTable, added: Sequence[DataFile], at_hand: Mapping[str, pa.Table]) -> Iterator[pa.Table]:
    for file in added:
        rows = at_hand.get(file.path)
        yield from _rows(lake, [file]) if rows is None else iter([rows.select(lake.schema.names)])


def _rows(lake: DeltaTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    return (rows for file in files for rows in lake.batches(file))
