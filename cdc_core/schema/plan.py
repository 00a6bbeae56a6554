"""The lake's operations from one version of a table to the next, once their columns are matched."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from cdc_core.schema.changes import (
    AddColumn,
    ChangeKind,
    Comment,
    Decision,
    DeltaFeature,
    DropColumn,
    DroppedColumns,
    LakeFeatures,
    MoveTable,
    Operation,
    PauseCause,
    Policy,
    RenameColumn,
    RetireColumn,
    SchemaChange,
    SetKey,
    Verdict,
    WidenColumn,
)
from cdc_core.schema.fingerprint import KeyMark
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.schema.unseen import is_streamed

OWN_COLUMNS = frozenset(
    {"__commit_lsn", "__tx_index", "__commit_ts", "__rescued", "__deleted", "__current"}
    | {"__valid_from_lsn", "__valid_to_lsn", "__valid_to_index", "__valid_from", "__valid_to"}
)
"""The metadata columns of lake tables, of all delete modes."""

# Longer than any name in PostgreSQL.
_TEMPORARY = "__renamed_{:_<60}"


@dataclass(frozen=True, slots=True)
class Version:
    """The step from ``base`` to ``table``; columns of both have attnums. ``current`` is the catalogue's description."""

    base: TableSchema
    table: TableSchema
    current: TableSchema
    captures: Callable[[str], bool]

    def marked(self, *, is_exact: bool, keys: tuple[KeyMark, ...]) -> Version:
        """Return the step with the current fingerprint and these of its ``keys``.

        ``is_exact``: it is that of the version, not a later one.
        """
        marks = dataclasses.replace(self.current.marks, is_exact=is_exact, keys=keys)
        return dataclasses.replace(self, table=dataclasses.replace(self.table, fingerprint=marks))

    def old(self) -> dict[int, Column]:
        """The streamed columns of ``base`` by attnum."""
        return {c.attnum: c for c in self.base.columns if is_streamed(c, self.base.fingerprint)}

    def new(self) -> dict[int, Column]:
        """The columns of ``table`` by attnum, in order."""
        return {c.attnum: c for c in self.table.columns}

    def kept(self) -> Iterator[tuple[Column, Column]]:
        """Yield pairs of columns that are in both."""
        old = self.old()
        return ((old[number], column) for number, column in self.new().items() if number in old)

    def added(self) -> list[Column]:
        """Return the columns of ``table`` that are not in ``base``."""
        old = self.old()
        return [column for number, column in self.new().items() if number not in old]

    @staticmethod
    def numbers(table: TableSchema, names: Sequence[str]) -> frozenset[int]:
        """Return the attnums of columns."""
        return frozenset(column.attnum for column in table.columns if column.name in names)

    def key_numbers(self, table: TableSchema) -> frozenset[int]:
        """Return the attnums of the key of ``table``."""
        return self.numbers(table, table.row_key)


def lake_plan(
    version: Version,
    lake_type: Callable[[Column], pa.DataType],
    policy: Policy,
    lake_columns: Sequence[str] | None,
) -> Decision:
    """Return FOLLOW with its operations, or REFUSE if the lake cannot have the names."""
    old = {number: column for number, column in version.old().items() if version.captures(column.name)}
    new = {number: column for number, column in version.new().items() if version.captures(column.name)}
    clash = name_clash(version.table.id, [column.name for column in new.values()])
    if clash is not None:
        change = SchemaChange(ChangeKind.ADD_COLUMN, clash.column)
        return Decision(Verdict.REFUSE, (change,), reason=clash.reason, cause=clash.cause, action=clash.action)
    operations: list[Operation] = []
    if version.base.id != version.table.id:
        operations.append(MoveTable(version.base.id, version.table.id))
    present = list(lake_columns) if lake_columns is not None else [column.name for column in old.values()]
    keeps = policy.dropped is DroppedColumns.KEEP and bool(version.table.row_key)
    operations += _departures(old, new, present, keeps=keeps)
    renames = {old[n].name: column.name for n, column in new.items() if n in old and old[n].name != column.name}
    operations += _renames(renames)
    operations += [
        WidenColumn(column.name, column)
        for number, column in new.items()
        if number in old and not lake_type(column).equals(lake_type(old[number]))
    ]
    operations += [AddColumn(column, column.missing) for number, column in new.items() if number not in old]
    if version.key_numbers(version.base) != version.key_numbers(version.table):
        operations.append(SetKey(version.table.row_key))
    operations += _comments(version, old, new)
    needs = _needs(operations)
    rewrites = bool(needs) and policy.features is LakeFeatures.WIDEST
    table = dataclasses.replace(version.table, version=version.base.version + 1)
    changes = tuple(_changes(version))
    if not changes and not operations:
        table = dataclasses.replace(version.table, version=version.base.version)
    return Decision(Verdict.FOLLOW, changes, tuple(operations), frozenset() if rewrites else needs, rewrites, table)


@dataclass(frozen=True, slots=True)
class NameClash:
    """A column whose name a lake table cannot have, with the reason and the user's ``action`` (as in ``Decision``)."""

    column: str
    reason: str
    action: str
    cause: ClassVar[PauseCause] = PauseCause.NAME_CLASH

    @property
    def remedy(self) -> str:
        """The remedy as a sentence."""
        return self.cause.remedy(self.action)


def name_clash(table: TableId, columns: Iterable[str]) -> NameClash | None:
    """Return the first of a table's captured columns whose name a lake table cannot have, None if it can have all."""
    seen = set(OWN_COLUMNS)
    for name in columns:
        if name.lower() in seen:
            fault = "differs from another only in case"
            if name.lower() in OWN_COLUMNS:
                fault = "has a name that is reserved for wal2lake's metadata columns"
            reason = f"Column {name} of {table} {fault}, which is not possible in a Delta table."
            return NameClash(name, reason, "Exclude one of them with column.exclude.list, or rename it in the source")
        seen.add(name.lower())
    return None


def _departures(
    old: dict[int, Column], new: dict[int, Column], present: Sequence[str], *, keeps: bool
) -> list[Operation]:
    """Return operations for columns that no longer exist, and for retired columns whose name another column needs.

    Without a key a row is identified by all its columns, and later changes contain no values of dropped ones.
    """
    taken = {column.name.lower() for column in new.values()}
    owned = {column.name for column in old.values()}
    out: list[Operation] = []
    for number, column in old.items():
        if number in new:
            continue
        drops = not keeps or column.name.lower() in taken
        out.append(DropColumn(column.name) if drops else RetireColumn(column.name))
    out += [DropColumn(name) for name in present if name not in owned and (not keeps or name.lower() in taken)]
    return out


def _renames(renames: dict[str, str]) -> list[Operation]:
    """Order renames so that no name is in use; a cycle of renames uses a temporary name."""
    waiting, out = dict(renames), []
    while waiting:
        taken = {name.lower() for name in waiting}
        free = [name for name, to in waiting.items() if to.lower() not in taken - {name.lower()}]
        for name in free:
            out.append(RenameColumn(name, waiting.pop(name)))
        if not free:
            name = next(iter(waiting))
            temporary = _TEMPORARY.format(len(out))
            out.append(RenameColumn(name, temporary))
            waiting[temporary] = waiting.pop(name)
    return list(out)


def _needs(operations: Sequence[Operation]) -> frozenset[DeltaFeature]:
    out = set()
    if any(isinstance(operation, RenameColumn | DropColumn) for operation in operations):
        out.add(DeltaFeature.COLUMN_MAPPING)
    if any(isinstance(operation, WidenColumn) for operation in operations):
        out.add(DeltaFeature.TYPE_WIDENING)
    return frozenset(out)


def _comments(version: Version, old: dict[int, Column], new: dict[int, Column]) -> list[Operation]:
    out: list[Operation] = []
    if version.base.comment != version.table.comment:
        out.append(Comment("", version.table.comment))
    for number, column in new.items():
        if column.comment != (old[number].comment if number in old else None):
            out.append(Comment(column.name, column.comment))
    return out


def _changes(version: Version) -> Iterator[SchemaChange]:
    """Yield the changes, by column and then of the table."""
    base, table = version.base, version.table
    old, new = version.old(), version.new()
    for number, column in old.items():
        if number not in new:
            yield SchemaChange(ChangeKind.DROP_COLUMN, column.name, number)
    for number, column in new.items():
        if number not in old:
            yield SchemaChange(ChangeKind.ADD_COLUMN, column.name, number, detail=column.type.name)
        else:
            yield from _column_changes(old[number], column)
    known = {mark.attnum for mark in version.base.marks.columns}
    for column in version.current.columns:
        if column.attnum not in known and not is_streamed(column, version.current.fingerprint):
            yield SchemaChange(ChangeKind.GENERATED, column.name, column.attnum)
    if version.key_numbers(base) != version.key_numbers(table):
        yield SchemaChange(ChangeKind.CHANGE_KEY, before=", ".join(base.row_key), detail=", ".join(table.row_key))
    if base.identity is not table.identity:
        yield SchemaChange(ChangeKind.CHANGE_IDENTITY, before=base.identity.name, detail=table.identity.name)
    if base.id != table.id:
        yield SchemaChange(ChangeKind.MOVED, before=str(base.id), detail=str(table.id))
    if base.comment != table.comment:
        yield SchemaChange(ChangeKind.COMMENT)
    yield from _new_labels(version)


def _column_changes(old: Column, new: Column) -> Iterator[SchemaChange]:
    if old.name != new.name:
        yield SchemaChange(ChangeKind.RENAME_COLUMN, new.name, new.attnum, before=old.name)
    if (old.type.oid, old.modifier) != (new.type.oid, new.modifier):
        yield SchemaChange(ChangeKind.CHANGE_TYPE, new.name, new.attnum, old.type.name, new.type.name)
    if old.optional != new.optional:
        yield SchemaChange(ChangeKind.CHANGE_NULLABILITY, new.name, new.attnum)
    if old.comment != new.comment:
        yield SchemaChange(ChangeKind.COMMENT, new.name, new.attnum)


def _new_labels(version: Version) -> Iterator[SchemaChange]:
    known = {mark.oid: mark for mark in version.base.marks.types}
    for mark in version.current.marks.types:
        added = set(mark.parts) - set(known[mark.oid].parts) if mark.oid in known else set()
        if added and mark.kind == "e":
            yield SchemaChange(ChangeKind.ENUM_LABELS, detail=", ".join(sorted(label for _, label in added)))


def same_layout(one: TableSchema, other: TableSchema) -> bool:
    """Whether rows of both are read in the same way: same columns, types, key and replica identity."""
    return (
        [(c.name, c.type.oid, c.modifier, c.type.money_scale) for c in one.columns]
        == [(c.name, c.type.oid, c.modifier, c.type.money_scale) for c in other.columns]
        and one.row_key == other.row_key
        and one.identity is other.identity
        and one.oid == other.oid
    )


def same_columns(one: TableSchema, other: TableSchema) -> bool:
    """Whether columns of one name are the same column: one that was dropped and added again is a different column."""
    known = {column.name: column.attnum for column in one.columns if column.attnum}
    return all(known.get(each.name, each.attnum) == each.attnum for each in other.columns if each.attnum)
