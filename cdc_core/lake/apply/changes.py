"""One table's slice of change rows, prepared for merging: a class for each kind of slice, and their effect.

    Inserts           only inserts, past the snapshot's overlap: as keys are unique, the lake has none of them
    KeyedChanges      everything else with a key; for a table that keeps deleted rows (soft) inserts, too
    MultisetChanges   everything else without one
    VersionedChanges  everything else of a history table (``reduce/history``)
    Replacement       the slice contains a truncate: the changes after it are the table's entire content (hard)

``apply`` returns the effect on the table's files; it marks rows or rewrites their files as the ``Ways`` say. In a table
that keeps rows, a truncate also ends rows of other keys than the slice's: ``truncated``.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from cdc_core.errors import InvariantError
from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.apply.added import Inserts, Replacement
from cdc_core.lake.apply.keyed import KeyedChanges, absent_of
from cdc_core.lake.apply.multiset_rows import MultisetChanges, absent_rows
from cdc_core.lake.apply.rewrite import FILE_BYTES, Rewrite
from cdc_core.lake.apply.versioned import VersionedChanges
from cdc_core.lake.apply.ways import REWRITE, Ways
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode, check_key
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.reading import ReadOnce
from cdc_core.lake.reduce.history import version_slice
from cdc_core.lake.reduce.latest import reduce_slice
from cdc_core.lake.reduce.multiset import arrivals, net_rows
from cdc_core.lake.reduce.soft import reduce_soft
from cdc_core.lake.rows.survey import Survey, after_position, check_old_rows, invisible, survey
from cdc_core.schema import TableSchema

Changes: TypeAlias = Inserts | Replacement | KeyedChanges | MultisetChanges | VersionedChanges


def apply(content: Content, changes: Changes, file_bytes: int = FILE_BYTES, ways: Ways = REWRITE) -> Rewrite:
    """Return the effect of the slice. Shape: change rows -> files removed, rows marked, tables of the schema added."""
    return changes.apply(ReadOnce(content), ways, file_bytes)


def prepare(
    rows: pa.Table, table: TableSchema, schema: pa.Schema, snapshot: str | None = None, whole: Survey | None = None
) -> Changes:
    """Prepare change rows for the lake table of ``schema``, which contains all their columns.

    ``rows`` are change rows in any order. ``snapshot`` is the text of the pg_snapshot in force while the slice overlaps
    it: rows that it shows are in the lake already. Without it the slice is past the overlap. ``whole`` summarizes the
    slice of which ``rows`` are a part with all rows of their keys. Raises TableError if the changed rows cannot be
    identified, InvariantError for a truncate of a table that keeps rows without it (``truncated``).
    """
    rows = rows if snapshot is None else invisible(rows, snapshot)
    facts, key = whole or survey(rows), table.row_key
    check_old_rows(facts, bool(key), table, schema.names)
    guarded, mode = snapshot is None, mode_of(schema.names)
    check_key(table, mode)
    if whole is None and facts.truncated_at is not None and mode is not DeleteMode.HARD:
        raise InvariantError(f"A truncate of {table.id}, which keeps rows, is not merged by its changes alone.")
    if mode is DeleteMode.SOFT:
        return KeyedChanges(facts.rows, guarded, reduce_soft(rows, key, schema))
    if facts.only_inserts and (not key or guarded):
        return Inserts(facts.rows, arrivals(rows, schema))
    if mode is DeleteMode.HISTORY:
        return VersionedChanges(facts.rows, guarded, version_slice(rows, key, schema))
    if facts.truncated_at is not None:
        return _replacement(rows, facts, facts.truncated_at, key, schema)
    if not key:
        return MultisetChanges(facts.rows, net_rows(rows, schema))
    return KeyedChanges(facts.rows, guarded, reduce_slice(rows, key, schema))


def _replacement(
    rows: pa.Table, facts: Survey, at: tuple[int, int], key: tuple[str, ...], schema: pa.Schema
) -> Changes:
    rest = after_position(rows, at)
    absent: AbsentRows | None
    if key:
        reduced = reduce_slice(rest, key, schema)
        plus = reduced.rows.filter(pa.array(~reduced.deleted))
        absent = absent_of(reduced, np.zeros(len(reduced.deleted), dtype=bool))
    else:
        net = net_rows(rest, schema)
        plus, absent = net.plus, absent_rows(net, net.needed)
    return Replacement(facts.rows, plus, absent)
