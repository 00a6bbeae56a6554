"""One table's slice of change rows, prepared for merging: its merge strategy and the reduced rows.

APPEND     only inserts, past the snapshot's overlap: as the source's key is unique, none of them is there yet
MERGE      everything else with a key; for a table that keeps deleted rows (``soft``) inserts and truncates, too
MULTISET   everything else without one
VERSIONS   everything else of a history table (``reduce/history``)
PLACED     late changes of a history table, replayed from quarantine (``past_versions``)
REPLACE    the slice contains a truncate: the changes after it are the table's entire content
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import pyarrow as pa

from cdc_core.lake.apply.past_versions import PlacedVersions, placed_versions
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.reduce.history import VersionedSlice, version_slice
from cdc_core.lake.reduce.latest import ReducedSlice, reduce_slice
from cdc_core.lake.reduce.multiset import NetRows, arrivals, net_rows
from cdc_core.lake.reduce.soft import reduce_soft
from cdc_core.lake.rows.row_keys import check_key, merge_key
from cdc_core.lake.rows.survey import Survey, after_position, check_old_rows, invisible, survey
from cdc_core.schema.table import TableSchema


class MergeStrategy(enum.Enum):
    """How a slice is merged into the table's next version."""

    APPEND = "append"
    MERGE = "merge"
    VERSIONS = "versions"
    PLACED = "placed"
    MULTISET = "multiset"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Changes:
    """A slice with its merge strategy. ``events`` is the number of its change rows.

    ``reduced`` is set for MERGE, ``net`` for MULTISET, ``versions`` for VERSIONS, ``placed`` for PLACED, ``plus`` (lake
    rows) for APPEND and REPLACE.
    ``guarded``: a change must not overwrite a lake row of its own or a later position.
    """

    strategy: MergeStrategy
    events: int
    guarded: bool
    reduced: ReducedSlice | None = None
    net: NetRows | None = None
    plus: pa.Table | None = None
    versions: VersionedSlice | None = None
    placed: PlacedVersions | None = None


def prepare(
    rows: pa.Table, table: TableSchema, schema: pa.Schema, snapshot: str | None = None, whole: Survey | None = None
) -> Changes:
    """Prepare change rows for the lake table of ``schema``, which contains all their columns.

    ``rows`` are change rows in any order. ``snapshot`` is the text of the pg_snapshot in force while the slice overlaps
    it: rows that it shows are in the lake already. Without it the slice is past the overlap. ``whole`` summarizes the
    slice of which ``rows`` are a part with all rows of their keys. Raises TableError if the changed rows cannot be
    identified.
    """
    rows = rows if snapshot is None else invisible(rows, snapshot)
    facts, key = whole or survey(rows), merge_key(table)
    check_old_rows(facts, bool(key), table)
    guarded, mode = snapshot is None, mode_of(schema.names)
    check_key(table, mode)
    if mode is DeleteMode.SOFT:
        return Changes(MergeStrategy.MERGE, facts.rows, guarded, reduced=reduce_soft(rows, key, schema))
    if facts.only_inserts and (not key or guarded):
        return Changes(MergeStrategy.APPEND, facts.rows, guarded, plus=arrivals(rows, schema))
    if mode is DeleteMode.HISTORY:
        return Changes(MergeStrategy.VERSIONS, facts.rows, guarded, versions=version_slice(rows, key, schema))
    if facts.truncated_at is not None:
        return _replacement(rows, facts, facts.truncated_at, key, schema, guarded)
    if not key:
        return Changes(MergeStrategy.MULTISET, facts.rows, guarded, net=net_rows(rows, schema))
    return Changes(MergeStrategy.MERGE, facts.rows, guarded, reduced=reduce_slice(rows, key, schema))


def prepare_placed(rows: pa.Table, table: TableSchema, content: Content) -> Changes:
    """Prepare late change rows for a history table; reads the existing versions of their keys.

    Raises TableError if the changed rows cannot be identified.
    """
    facts, key = survey(rows), merge_key(table)
    check_old_rows(facts, bool(key), table)
    check_key(table, DeleteMode.HISTORY)
    return Changes(MergeStrategy.PLACED, facts.rows, True, placed=placed_versions(content, rows, key))


def _replacement(
    rows: pa.Table, facts: Survey, at: tuple[int, int], key: tuple[str, ...], schema: pa.Schema, guarded: bool
) -> Changes:
    rest = after_position(rows, at)
    if key:
        reduced = reduce_slice(rest, key, schema)
        plus = reduced.rows.filter(pa.array(~reduced.deleted))
    else:
        plus = net_rows(rest, schema).plus
    return Changes(MergeStrategy.REPLACE, facts.rows, guarded, plus=plus)
