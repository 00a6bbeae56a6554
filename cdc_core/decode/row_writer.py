"""Turns decoded rows of a plug-in into pgoutput's frames, with a Relation message before the rows of each new format.

Both plug-ins show the format of a row in the row itself: names and types of its columns. Rows of one format and one
kind are a ``RowGroup``, decoded and written at once. The format of a row that does not show all columns (an update
without unchanged large values, a delete that sends the key only) is the one of the table's last complete row before
it, if that has its columns; otherwise the catalogue is queried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode.gather import null_text
from cdc_core.decode.pgoutput import write
from cdc_core.decode.plugin import Relations, SeenColumn
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.decode.segment import Segment
from cdc_core.schema import Relation, ReplicaIdentity, TableId

# As large as a segment that is read, so that a batch can be divided between them.
MOST_BYTES = 16 << 20
_INSERT = ord("I")
_UPDATE = ord("U")
# Types of a fixed length: bool, "char", int8, int2, int4, oid, float4, float8, money, date, time, timestamp,
# timestamptz, interval, timetz, uuid, point, line, lseg, box, circle, macaddr, macaddr8, pg_lsn.
_NEVER_LARGE = frozenset(
    (16, 18, 20, 21, 23, 26, 700, 701, 790, 1082, 1083, 1114, 1184, 1186, 1266, 2950, 600, 628, 601, 603, 718, 829, 774,
     3220)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowGroup:
    """N rows of one table and one format, in stream order: ``at[N]`` are their frames, ``lsn[N]`` their LSNs.

    ``op`` is I, U or D. ``columns`` are those that the rows show; ``is_complete``: a row of the table has no others.
    ``new`` and ``old`` have some of the columns, None for a tuple that was not sent. A delete or update with neither is
    one whose row is not known. ``repeats_key``: an update's old tuple is the key, whether or not it changed.
    """

    table: TableId
    op: int
    at: np.ndarray
    lsn: np.ndarray
    columns: tuple[SeenColumn, ...]
    is_complete: bool
    new: RawColumns | None
    old: RawColumns | None
    repeats_key: bool = False


@dataclass(slots=True)
class Pieces:
    """Frames of a segment, each with its place: twice the frame's number, one less for what goes before it."""

    places: list[np.ndarray] = field(default_factory=list)
    frames: list[pa.Array] = field(default_factory=list)

    def add(self, at: np.ndarray, frames: pa.Array) -> None:
        """Add frames in place of others, in any order."""
        if len(at):
            self.places.append(at * 2)
            self.frames.append(frames)

    def add_before(self, at: int, frame: bytes) -> None:
        """Add one frame before another."""
        self.places.append(np.array([at * 2 - 1]))
        self.frames.append(pa.array([frame], pa.binary()))

    def segments(self, before: int | None = None) -> tuple[list[Segment], list[Segment]]:
        """Return all frames in the order of their places: those in place of frames below ``before``, and the others.

        Without it all are in the first part.
        """
        if not self.places:
            return [], []
        places = np.concatenate(self.places)
        order = np.argsort(places, kind="stable")
        whole = pa.concat_arrays(self.frames)
        in_order = whole if (np.diff(order) == 1).all() else whole.take(pa.array(order))
        count = len(order) if before is None else int(np.count_nonzero(places < before * 2 - 1))
        return (
            write.segments_of(in_order.slice(0, count), MOST_BYTES),
            write.segments_of(in_order.slice(count), MOST_BYTES),
        )


class RowGroupWriter:
    """Writes row groups; keeps which format of each table was announced. For one connection.

    Deletes and updates whose row is not known are passed on as deletes without a row, which a lake table refuses and
    events leave out.
    """

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._of_table: dict[TableId, Relation] = {}
        self._announced: dict[int, Relation] = {}
        self._complete: dict[tuple[TableId, tuple[SeenColumn, ...]], Relation] = {}

    def oid(self, table: TableId) -> int:
        """Return the oid of a table, for a truncate."""
        return self._last(table).oid

    def _last(self, table: TableId) -> Relation:
        """Return the relation of the table's last row; without one, that of the catalogue."""
        if table not in self._of_table:
            captured = self._relations.is_captured(table)
            self._of_table[table] = self._relations.extended(table, ()) if captured else self._empty(table)
        return self._of_table[table]

    def _empty(self, table: TableId) -> Relation:
        return Relation(self._relations.oid(table), table.schema, table.table, ReplicaIdentity.DEFAULT, ())

    def write(self, groups: Sequence[RowGroup], pieces: Pieces, truncates: Sequence[tuple[int, TableId]] = ()) -> None:
        """Add the groups' rows, and the Relation messages before them and before the truncates' frames."""
        used: list[tuple[np.ndarray, Relation]] = []
        by_table: dict[TableId, list[RowGroup]] = {}
        for group in sorted(groups, key=lambda member: int(member.at[0])):
            by_table.setdefault(group.table, []).append(group)
        for table, mine in by_table.items():
            if not self._relations.is_captured(table):
                used += self._write_uncaptured(table, mine, pieces)
                continue
            for group, rows, relation in self._with_relations(table, mine):
                self._write_rows(group, rows, relation, pieces)
                used.append((group.at if rows is None else group.at[rows], relation))
        used += [(np.array([at]), self._last(table)) for at, table in truncates]
        self._announce(used, pieces)

    def _with_relations(
        self, table: TableId, groups: list[RowGroup]
    ) -> list[tuple[RowGroup, np.ndarray | None, Relation]]:
        """Return which rows (None: all) of each group have which relation."""
        known = self._of_table.get(table)
        complete = [self._completed(group) if group.is_complete else None for group in groups]
        distinct = list(dict.fromkeys(candidate for candidate in [known, *complete] if candidate is not None))
        if len(distinct) <= 1:
            relation = distinct[0] if distinct else None
            out: list[tuple[RowGroup, np.ndarray | None, Relation]] = []
            for group in groups:
                if relation is None or not fits(relation, group):
                    relation = self._relations.extended(table, group.columns)
                out.append((group, None, relation))
                self._of_table[table] = relation
            return out
        return self._in_order(table, groups, complete, known)

    def _in_order(
        self, table: TableId, groups: list[RowGroup], complete: list[Relation | None], known: Relation | None
    ) -> list[tuple[RowGroup, np.ndarray | None, Relation]]:
        of = np.repeat(np.arange(len(groups)), [len(group.at) for group in groups])
        order = np.argsort(np.concatenate([group.at for group in groups]), kind="stable")
        rows = np.concatenate([np.arange(len(group.at)) for group in groups])
        rows_of: dict[tuple[int, Relation], list[int]] = {}
        # row-wise: only in a segment in which the format of the table changes
        for number, row in zip(of[order].tolist(), rows[order].tolist(), strict=True):
            of_group = complete[number]
            if of_group is not None:
                known = of_group
            elif known is None or not fits(known, groups[number]):
                known = self._relations.extended(table, groups[number].columns)
            rows_of.setdefault((number, known), []).append(row)
            self._of_table[table] = known
        return [(groups[number], np.array(its), relation) for (number, relation), its in rows_of.items()]

    def _completed(self, group: RowGroup) -> Relation:
        key, current = (group.table, group.columns), self._of_table.get(group.table)
        known = self._complete.get(key)
        if known is None or (current is not None and known != current):
            # The table's format changed since, perhaps back to this one: the catalogue is queried again.
            self._complete[key] = self._relations.complete(group.table, group.columns)
        return self._complete[key]

    def _write_rows(self, group: RowGroup, rows: np.ndarray | None, relation: Relation, pieces: Pieces) -> None:
        at, lsn = (group.at, group.lsn) if rows is None else (group.at[rows], group.lsn[rows])
        if group.new is None and group.old is None:
            if group.op == _INSERT:
                # A row of a table without columns.
                nothing = arranged(RawColumns((), (), (), len(at)), relation)
                pieces.add(at, write.rows(lsn, _INSERT, relation, nothing, None))
            else:
                pieces.add(at, write.deletes_of_unknown(lsn, relation))
            return
        omits = group.op == _UPDATE and not group.is_complete
        new = None if group.new is None else arranged(_some(group.new, rows), relation, omits=omits)
        old = None if group.old is None else arranged(_some(group.old, rows), relation)
        if group.repeats_key and new is not None and old is not None and relation.identity is not ReplicaIdentity.FULL:
            same = _has_same_key(relation, new, old)
            pieces.add(at[same], write.rows(lsn[same], group.op, relation, _some(new, same), None))
            at, lsn, new, old = at[~same], lsn[~same], _some(new, ~same), _some(old, ~same)
        is_key = None if old is None else _is_key(relation, new, old)
        pieces.add(at, write.rows(lsn, group.op, relation, new, old, is_key))

    def _write_uncaptured(
        self, table: TableId, groups: list[RowGroup], pieces: Pieces
    ) -> list[tuple[np.ndarray, Relation]]:
        known = self._last(table)
        for group in groups:
            pieces.add(group.at, write.uncaptured(group.lsn, np.full(len(group.at), known.oid)))
        return [(group.at, known) for group in groups]

    def _announce(self, used: list[tuple[np.ndarray, Relation]], pieces: Pieces) -> None:
        """Add a Relation message before each row whose relation is another than its oid's last one."""
        by_oid: dict[int, list[tuple[np.ndarray, Relation]]] = {}
        for at, relation in used:
            by_oid.setdefault(relation.oid, []).append((at, relation))
        for oid, mine in by_oid.items():
            relations = list(dict.fromkeys(relation for _, relation in mine))
            if relations == [self._announced.get(oid)]:
                continue
            numbers = np.repeat([relations.index(relation) for _, relation in mine], [len(at) for at, _ in mine])
            at = np.concatenate([at for at, _ in mine])
            order = np.argsort(at, kind="stable")
            numbers, at = numbers[order], at[order]
            before = relations.index(self._announced[oid]) if self._announced.get(oid) in relations else -1
            changed = np.diff(numbers, prepend=before) != 0
            for frame, number in zip(at[changed].tolist(), numbers[changed].tolist(), strict=True):  # once a format
                pieces.add_before(frame, write.relation_frame(relations[number]))
            self._announced[oid] = relations[int(numbers[-1])]


def fits(relation: Relation, group: RowGroup) -> bool:
    """Whether rows of a group that may not show all columns can be rows of this relation."""
    types = {column.name: column.type_oid for column in relation.columns}
    if any(types.get(column.name) != column.type_oid for column in group.columns):
        return False
    if group.is_complete or group.op != _UPDATE:
        return True
    # Only a value that can be stored out of line is left out when it did not change.
    shown = {column.name for column in group.columns}
    return not any(kind in _NEVER_LARGE for name, kind in types.items() if name not in shown)


def arranged(columns: RawColumns, relation: Relation, *, omits: bool = False) -> RawColumns:
    """Return the columns in the relation's order; those that are missing are null, if ``omits`` unchanged values."""
    at = {name: index for index, name in enumerate(columns.names)}
    count = len(columns)
    text, unchanged = [], []
    for column in relation.columns:
        index = at.get(column.name)
        text.append(null_text(count) if index is None else columns.text[index])
        omitted = np.ones(count, dtype=bool) if omits else None
        unchanged.append(omitted if index is None else columns.unchanged[index])
    return RawColumns(tuple(column.name for column in relation.columns), tuple(text), tuple(unchanged), count)


def _some(columns: RawColumns, rows: np.ndarray | None) -> RawColumns:
    """Return some rows: ``rows`` is a mask, or indices, or None for all."""
    if rows is None:
        return columns
    index = pa.array(np.flatnonzero(rows) if rows.dtype == np.bool_ else rows)
    text = tuple(each.take(index) for each in columns.text)
    unchanged = tuple(None if each is None else each[rows] for each in columns.unchanged)
    return RawColumns(columns.names, text, unchanged, len(index))


def _has_same_key(relation: Relation, new: RawColumns, old: RawColumns) -> np.ndarray:
    """Return the rows whose old key is the new one; all of them if the relation has no key."""
    same = np.ones(len(new), dtype=bool)
    for index, column in enumerate(relation.columns):
        if column.is_identity:
            same &= pc.fill_null(pc.equal(new.text[index], old.text[index]), False).to_numpy(zero_copy_only=False)
    return same


def _is_key(relation: Relation, new: RawColumns | None, old: RawColumns) -> np.ndarray:
    """Return which old tuples are the key only.

    The catalogue's replica identity may be newer than the row, so that values decide where they can: another column's
    value shows an entire row, and a value that is missing where the update left it unchanged shows a key.
    """
    is_full = relation.identity is ReplicaIdentity.FULL
    is_key = np.full(len(old), not is_full)
    for index, column in enumerate(relation.columns):
        has_value = old.text[index].is_valid().to_numpy(zero_copy_only=False)
        if not is_full and not column.is_identity:
            is_key &= ~has_value
        elif is_full and new is not None and (unchanged := new.unchanged[index]) is not None:
            is_key |= unchanged & ~has_value
    return is_key
