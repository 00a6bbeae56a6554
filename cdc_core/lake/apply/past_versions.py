"""Inserts versions between the existing versions of a history table, for late changes (replayed from quarantine).

Every change of a key is a boundary between its versions, and a version ends at the first boundary after it. So all
versions of the affected keys are read, ended or not, and converted back to change rows: a complete image where one
begins, a delete where it ends. Together with the late changes, in stream order, they result in the versions that the
table must have (``reduce/history``). For existing versions only the ends may differ; the others are new. A change that
the table already has begins no version, identified by its position: repeating a replay changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.rewrite import Rewrite, TouchedFile
from cdc_core.lake.apply.versioned import apart
from cdc_core.lake.apply.ways import Ways, live_places
from cdc_core.lake.delete_columns import POSITION, TO, TO_LSN, is_live
from cdc_core.lake.delta.candidates import Content, Ranges
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.reduce.history import ended, version_slice
from cdc_core.lake.reduce.latest import Upserts, changed_keys, image_schema, numbered_keys
from cdc_core.lake.rows.images import column, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.survey import is_op

_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class ChangedEnds:
    """Versions of a file with changed ends: their positions in it, and the new rows. Shape: [H] each."""

    file: DataFile
    places: np.ndarray
    rows: pa.Table

    @property
    def touched(self) -> TouchedFile:
        """The rows as ones that leave their places."""
        return TouchedFile(self.file, self.places, lambda _: self.rows)


@dataclass(frozen=True, slots=True)
class PlacedVersions:
    """The effect of late changes on a history table. ``rows`` are new versions; ``key`` the key columns."""

    changed: list[ChangedEnds]
    rows: pa.Table
    key: tuple[str, ...]


def placed_versions(content: Content, rows: pa.Table, key: Sequence[str]) -> PlacedVersions:
    """Return the versions that change rows (no truncates, all with their keys) begin and end, at any position."""
    schema = content.schema
    if not rows.num_rows:
        return PlacedVersions([], schema.empty_table(), tuple(key))
    rows = conform(rows, _change_schema(schema))
    found = list(_held(content, rows, key))
    held = pa.concat_tables([schema.empty_table(), *[each.rows for each in found]]).combine_chunks()
    # At equal positions a delete is first, and an existing version last, so the late one has length zero.
    late = _without_doubled_deletes(pa.concat_tables([_closings(held), rows]).combine_chunks(), key, schema)
    every = pa.concat_tables([late, _openings(held)])
    made = version_slice(every, key, schema)
    numbers = np.concatenate([made.index.match(held.select(made.index.columns.read)), made.key[made.begun]])
    versions = pa.concat_tables([held, made.rows])
    lasting = np.flatnonzero(~_is_empty(versions))
    had, wanted = lasting[lasting < held.num_rows], lasting[lasting >= held.num_rows]
    codes = _numbered(numbers, versions)
    place = np.full(int(codes.max(initial=-1)) + 1, -1, dtype=np.int64)
    place[codes[wanted]] = wanted
    new = np.setdiff1d(wanted, place[codes[had]])
    changed = had[~_same_ends(versions.take(pa.array(had)), versions.take(pa.array(place[codes[had]])))]
    ends = versions.take(pa.array(place[codes[changed]]))
    return PlacedVersions(_by_file(found, held, changed, ends), versions.take(pa.array(new)), tuple(key))


@dataclass(frozen=True, slots=True)
class PlacedChanges:
    """Late changes of a history table. ``events`` is the number of change rows."""

    events: int
    placed: PlacedVersions

    def apply(self, content: Content, ways: Ways, file_bytes: int) -> Rewrite:
        """Return the effect of the versions: new ones inserted, those with changed ends updated."""
        rows = self.placed.rows
        live = is_live(rows)
        touched = [each.touched for each in self.placed.changed]
        begun, past = rows.filter(pa.array(live)), rows.filter(pa.array(~live))
        removed, marks, tables = apart(content, touched, begun, past, ways, file_bytes)
        return Rewrite(removed, tables, rows.num_rows, sum(len(each.places) for each in touched), 0, marks)


@dataclass(frozen=True, slots=True)
class _Held:
    """A file's versions of the affected keys, by their positions in it. Shape: places[H], rows[H]"""

    file: DataFile
    places: np.ndarray
    rows: pa.Table


def _held(content: Content, rows: pa.Table, key: Sequence[str]) -> Iterator[_Held]:
    """Yield the versions of the rows' keys; files whose versions all ended before the first of the rows are skipped."""
    index, keys = _keys(rows, key, content.schema)
    first = int(column(rows, POSITION[0]).to_numpy().min(initial=np.iinfo(np.int64).max))
    files = [each for each in content.files if not (each.is_history and each.maximum.get(TO_LSN, first) < first)]
    for file in Ranges.of(keys, index.columns.names).candidates(files):
        places = np.flatnonzero(index.match(content.read(file, index.columns.read)) >= 0)
        if len(places):
            yield _Held(file, live_places(content, file, places), content.read(file).take(pa.array(places)))


def _keys(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> tuple[KeyIndex, pa.Table]:
    columns = KeyColumns.of(key, schema)
    index, keys, _, _ = numbered_keys(rows, columns, Upserts.of(rows, columns, image_schema(schema)), is_op(rows, "d"))
    return index, keys


def _change_schema(lake: pa.Schema) -> pa.Schema:
    """Return the schema of change rows of a lake table, with the columns needed to create versions."""
    image = pa.struct(list(image_schema(lake)))
    at = list(zip(POSITION, (pa.int64(), pa.int64(), _TIME), strict=True))
    return pa.schema(
        [("__op", pa.string()), *at, ("__unchanged", pa.list_(pa.string())), ("before", image), ("after", image)]
    )


def _openings(held: pa.Table) -> pa.Table:
    """Convert versions to inserts at their beginning."""
    return _as_changes(held.filter(pa.array(~_is_empty(held))), "c", "after", POSITION)


def _closings(held: pa.Table) -> pa.Table:
    """Convert versions to deletes at their end."""
    return _as_changes(held.filter(pa.array(validity(column(held, TO_LSN)))), "d", "before", TO)


def _as_changes(held: pa.Table, op: str, side: str, at: Sequence[str]) -> pa.Table:
    schema, count = _change_schema(held.schema), held.num_rows
    fields = list(image_schema(held.schema))
    made = {"__op": pa.array(np.full(count, op, dtype=object), pa.string())}
    made |= {name: column(held, source) for name, source in zip(POSITION, at, strict=True)}
    made[side] = pa.StructArray.from_arrays([column(held, each.name) for each in fields], fields=fields)
    return conform(pa.table(made), schema)


def _without_doubled_deletes(rows: pa.Table, key: Sequence[str], schema: pa.Schema) -> pa.Table:
    """Return the rows without deletes at the same key and position as another row."""
    changed, deletes = changed_keys(rows, key, schema), is_op(rows, "d")
    whole = np.concatenate(
        [np.where(deletes, -1, changed.upserts), np.where(deletes, -1, changed.removals), changed.removals]
    )
    codes = _numbered(whole, pa.concat_tables([rows, rows, rows]))
    own, others = codes[2 * len(deletes) :], codes[: 2 * len(deletes)][whole[: 2 * len(deletes)] >= 0]
    return rows.filter(pa.array(~(deletes & np.isin(own, others))))


def _is_empty(versions: pa.Table) -> np.ndarray:
    """Return versions that end no later than they begin: they were never valid. Shape: table[N] -> bool[N]."""
    began, ends = (_positions(versions, names) for names in (POSITION[:2], TO[:2]))
    earlier = (ends[:, 0] < began[:, 0]) | ((ends[:, 0] == began[:, 0]) & (ends[:, 1] <= began[:, 1]))
    return np.asarray(earlier & validity(column(versions, TO_LSN)))


def _positions(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    """Return LSN and index, -2 for null. Shape: table[N] -> int64[N, 2]."""
    return np.stack([column(rows, name).fill_null(-2).to_numpy() for name in names], axis=1)


def _numbered(numbers: np.ndarray, versions: pa.Table) -> np.ndarray:
    """Number versions; equal for the same key and begin position. Shape: int64[N], table[N] -> int64[N]."""
    grid = np.concatenate([numbers[:, None], _positions(versions, POSITION[:2])], axis=1)
    return np.asarray(np.unique(grid, axis=0, return_inverse=True)[1]).reshape(-1)


def _same_ends(held: pa.Table, wanted: pa.Table) -> np.ndarray:
    return np.asarray((_positions(held, TO[:2]) == _positions(wanted, TO[:2])).all(axis=1))


def _by_file(found: Sequence[_Held], held: pa.Table, changed: np.ndarray, ends: pa.Table) -> list[ChangedEnds]:
    """Return the versions with changed ends by file. ``changed`` numbers rows of ``held``; ``ends``: theirs."""
    at = ends.select(list(TO)).rename_columns(list(POSITION))
    rows = ended(held.take(pa.array(changed)), at)
    starts = np.cumsum([0, *[len(each.places) for each in found]])
    low, high = np.searchsorted(changed, starts[:-1]), np.searchsorted(changed, starts[1:])
    return [
        ChangedEnds(each.file, each.places[changed[a:b] - start], rows.slice(a, b - a))
        for each, start, a, b in zip(found, starts[:-1], low.tolist(), high.tolist(), strict=True)
        if b > a
    ]
