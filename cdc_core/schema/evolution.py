"""Decides what the lake does about a table that changed: follow, re-read, or pause. A pure function of facts.

    base       the version of the lake table, with attnums and fingerprint
    announced  the Relation message's columns, if there was one: correct at its position in the stream
    current    the catalogue when it is queried, at or ahead of that position

FOLLOW is decided only if exactly one interpretation of the three is possible and every value of older rows is known:
unchanged, null, or the constant in pg_attribute.attmissingval. ALTER TABLE locks the table, so every event before the
position where the new version is announced, also in the same transaction, was written under the old version, and every
event after it contains all columns of the new one. The plan therefore applies to the rows as they are after the last
event before that position.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pyarrow as pa

from cdc_core.schema.alignment import ColumnPlace, align, keeps_text
from cdc_core.schema.changes import (
    ChangeKind,
    Decision,
    PauseCause,
    Policy,
    SchemaChange,
    SchemaChanges,
    Verdict,
)
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.plan import Version, lake_plan
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableSchema
from cdc_core.schema.unseen import (
    Heaps,
    Unseen,
    heaps,
    is_streamed,
    is_untouched,
    keeps_key,
    new_types,
    unseen_changes,
)

LakeType = Callable[[Column], pa.DataType]
_FLAGGING = (ReplicaIdentity.DEFAULT, ReplicaIdentity.INDEX)


def decide(
    base: TableSchema,
    announced: TableSchema | None,
    current: TableSchema | None,
    *,
    lake_type: LakeType,
    policy: Policy | None = None,
    captures: Callable[[str], bool] = lambda name: True,
    lake_columns: Sequence[str] | None = None,
    is_current: bool = False,
) -> Decision:
    """Decide what the lake does to get from ``base`` to the announced version.

    ``announced`` is None if the catalogue was queried without a Relation message: then the catalogue is the new
    version, from the position up to which the stream contained no event after the query. ``current`` is the catalogue's
    own description (``ResolvedRelation.current``), None if the table no longer exists. ``lake_type`` returns a column's
    lake type. ``captures`` returns by name which columns the lake has; ``lake_columns`` are its present ones without
    metadata columns (default: base's), including retired ones. ``is_current``: the caller knows that the catalogue is
    not ahead of the message.
    """
    policy = policy or Policy()
    if current is None or _is_other(base, announced):
        return _gone(base, announced, policy)
    if base.fingerprint is None:  # it was announced, and no longer in the catalogue by then
        reason = f"{base.id} was described when it no longer existed, and exists again."
        return _not_followed(base, [Unseen(SchemaChange(ChangeKind.AMBIGUOUS), reason)], policy)
    changes = unseen_changes(base, current)
    changes += [] if changes else _unknown_values(base, current)
    if announced is not None and not is_current:
        changes += new_types(base, current)
    if changes:
        return _not_followed(base, changes, policy)
    columns = _columns(base, announced, current, is_current)
    if columns is None:
        reason = (
            f"The columns of {base.id} changed more than once, and the catalogue does not show which column is which."
        )
        return _not_followed(base, [Unseen(SchemaChange(ChangeKind.AMBIGUOUS), reason)], policy)
    version = Version(base, _table(announced, current, columns), current, captures)
    changes = [*_type_changes(version, lake_type), *_new_captures(version)]
    if announced is not None and not is_current:
        changes += _keys(version)
    if changes:
        return _not_followed(base, changes, policy)
    after = current.marks
    # If the message is not behind any DDL, the fingerprint remains as exact as it was.
    is_exact = announced is None or is_current or (base.marks.is_exact and _rows(base) == _rows(current))
    # The catalogue may be ahead of the message: an index that was created since proves nothing of rows before it.
    keys = after.keys if announced is None or is_current else after.kept_keys(base.marks)
    return lake_plan(version.marked(is_exact=is_exact, keys=keys), lake_type, policy, lake_columns)


def _not_followed(base: TableSchema, found: Sequence[Unseen], policy: Policy) -> Decision:
    changes = tuple(one.change for one in found)
    worst = next((one for one in found if one.cause is not None), found[0])
    if worst.cause is not None:
        return Decision(Verdict.REFUSE, changes, reason=worst.reason, cause=worst.cause, action=worst.action)
    if policy.changes is SchemaChanges.PAUSE:
        action = f"Run wal2lake snapshot with {base.id}, or set wal2lake.lake.schema.changes=reread"
        return Decision(Verdict.REFUSE, changes, reason=worst.reason, cause=PauseCause.SCHEMA_CHANGE, action=action)
    return Decision(Verdict.REREAD, changes, reason=worst.reason)


def _is_other(base: TableSchema, announced: TableSchema | None) -> bool:
    """Whether the rows that follow belong to another table, regardless of the name's present table."""
    return announced is not None and announced.oid != base.oid and 0 not in (announced.oid, base.oid)


def _gone(base: TableSchema, announced: TableSchema | None, policy: Policy) -> Decision:
    """Decide for a table that was dropped or replaced: the stream may still contain its last changes."""
    if _is_other(base, announced):
        reason = f"Another table had the name {base.id} and was changed."
        return _not_followed(base, [Unseen(SchemaChange(ChangeKind.RECREATED), reason)], policy)
    change = SchemaChange(ChangeKind.GONE)
    if announced is None or _shape(announced.columns) == _shape(_streamed(base)):
        return Decision(Verdict.FOLLOW, (change,), table=base)
    return Decision(
        Verdict.REFUSE,
        (change,),
        reason=f"The columns of {base.id} changed and the table was dropped since, so its columns cannot be matched.",
        cause=PauseCause.DROPPED,
        action=f"Remove {base.id} from table.include.list, or create it again",
    )


def _shape(columns: Sequence[Column]) -> list[tuple[str, int, int]]:
    return [(column.name, column.type.oid, column.modifier) for column in columns]


def _streamed(table: TableSchema) -> tuple[Column, ...]:
    kept = [column for column in table.columns if is_streamed(column, table.fingerprint)]
    return tuple(sorted(kept, key=lambda column: column.attnum))


def _unknown_values(base: TableSchema, current: TableSchema) -> list[Unseen]:
    """Return new columns whose values in older rows are not in the catalogue.

    A column added with a default that is computed for each row (nextval, random(), a domain's constraint to check)
    rewrites the table and leaves no missing value; neither does a constant one once the table was rewritten.
    """
    before, after = base.marks, current.marks
    known = {column.attnum for column in base.columns}
    replaced = heaps(before, after) is not Heaps.SAME
    out = []
    for column in _streamed(current):
        is_told = column.missing is not None if column.has_missing else not replaced
        if column.attnum not in known and not is_told:
            change = SchemaChange(ChangeKind.VALUES_UNKNOWN, column.name, column.attnum)
            out.append(Unseen(change, f"Column {column.name} of {base.id} was added with values in existing rows."))
    return out


def _columns(
    base: TableSchema, announced: TableSchema | None, current: TableSchema, is_current: bool
) -> tuple[Column, ...] | None:
    """Return the columns at the position in the stream, with attnums; None if they cannot be determined."""
    now = _streamed(current)
    if announced is None or (is_current and _shape(announced.columns) == _shape(now)):
        return now
    before, after = base.marks, current.marks
    old = {column.attnum: column for column in _streamed(base)}
    new = {column.attnum: column for column in now}
    places = [
        ColumnPlace(
            attnum,
            tuple(known[attnum] for known in (old, new) if attnum in known),
            is_certain=attnum in old and attnum in new,
            is_fixed=attnum in old and attnum in new and is_untouched(before, after, attnum),
            is_new=attnum not in old,
        )
        for attnum in {*old, *new, *_came_and_went(base, before, after)}
    ]
    attnums = align(announced.columns, places, may_be_rewritten=heaps(before, after) is not Heaps.SAME)
    if attnums is None or any(attnum not in old and attnum not in new for attnum in attnums):
        return None
    columns = []
    for attnum, told in zip(attnums, announced.columns, strict=True):
        facts = new.get(attnum) or old[attnum]
        columns.append(dataclasses.replace(facts, name=told.name, type=told.type, modifier=told.modifier))
    return tuple(columns)


def _came_and_went(base: TableSchema, before: Fingerprint, after: Fingerprint) -> set[int]:
    """Return attnums of columns that are in neither version and may have existed in between."""
    live = {mark.attnum for mark in after.columns}
    since = set(range(before.attributes + 1, after.attributes + 1))
    ahead = {mark.attnum for mark in before.columns} - {column.attnum for column in base.columns}
    unsent = {column.attnum for column in base.columns if not is_streamed(column, before)}
    listed = after.publication.columns if after.publication is not None else None
    # Dropping a column of the column list removes the table from the publication, so listed columns are live.
    return set() if listed is not None else (since | ahead) - live - unsent


def _table(announced: TableSchema | None, current: TableSchema, columns: tuple[Column, ...]) -> TableSchema:
    """Return the version in force, with keys identified by attnum; columns that are not streamed remain in them."""
    names = {column.attnum: column.name for column in columns}
    numbers = {column.name: column.attnum for column in current.columns}
    unsent = {c.attnum: c.name for c in current.columns if not is_streamed(c, current.fingerprint)}

    def told(key: tuple[str, ...], names: dict[int, str] = names) -> tuple[str, ...]:
        return tuple(names[numbers[name]] for name in key if numbers[name] in names)

    unique_key = told(current.unique_key) if len(told(current.unique_key)) == len(current.unique_key) else ()
    version = dataclasses.replace(
        current,
        columns=columns,
        primary_key=told(current.primary_key, {**unsent, **names}),
        unique_key=unique_key,
        index_key=told(current.index_key),
        identity_key=told(current.identity_key, {**unsent, **names}),
    )
    if announced is None:
        return version
    flagged = announced.identity_key
    if announced.identity is ReplicaIdentity.DEFAULT and set(flagged) != set(version.primary_key) & {*names.values()}:
        # Under DEFAULT the flagged columns are the primary key at the time when these rows were written.
        version = dataclasses.replace(version, primary_key=flagged)
    return dataclasses.replace(version, id=announced.id, identity=announced.identity, identity_key=flagged)


def _type_changes(version: Version, lake_type: LakeType) -> list[Unseen]:
    """Return types changed without a rewrite whose values still have another text, or do not fit."""
    replaced = heaps(version.base.marks, version.current.marks) is not Heaps.SAME
    current = {column.attnum: column for column in version.current.columns}
    out = []
    for old, new in version.kept():
        fits = keeps_text(old.type, new.type) and holds(lake_type(new), lake_type(old))
        # For a column that no longer exists it is unknown whether its rows were rewritten.
        is_sure = new.attnum in current or not replaced
        if (old.type.oid, old.modifier) != (new.type.oid, new.modifier) and not (fits and is_sure):
            out.append(_type_change(version.base, old, new))
    for new in version.added():
        later = current[new.attnum]
        if new.has_missing and not keeps_text(new.type, later.type):
            out.append(_type_change(version.base, new, later))
    return out


def _type_change(table: TableSchema, old: Column, new: Column) -> Unseen:
    change = SchemaChange(ChangeKind.CHANGE_TYPE, new.name, new.attnum, old.type.name, new.type.name)
    return Unseen(change, f"Column {new.name} of {table.id} changed its type from {old.type.name} to {new.type.name}.")


def _keys(version: Version) -> list[Unseen]:
    """Return key changes that the stream does not show: earlier rows may have equal values of the new key."""
    base, table = version.base, version.table
    after = version.current.marks
    key = version.key_numbers(table)
    # Of a key with a column that is not streamed, a Relation shows the same columns as of one without it.
    known = {column.name for column in base.columns}
    hides = not known.issuperset((*base.primary_key, *(base.identity_key if base.identity in _FLAGGING else ())))
    hides |= any(not c.optional and not is_streamed(c, after) for c in version.current.columns)
    tells = table.identity in _FLAGGING and not hides
    if not key or (tells and key == version.numbers(table, table.identity_key)):
        return []
    if key == version.key_numbers(base) and keeps_key(base, after):
        return []
    change = SchemaChange(ChangeKind.CHANGE_KEY, before=", ".join(base.lake_key), detail=", ".join(table.lake_key))
    reason = f"The key of {base.id} changed, and its replica identity does not show from which event on."
    return [Unseen(change, reason)]


def _new_captures(version: Version) -> list[Unseen]:
    """Return columns that were excluded and are captured under their new name."""
    out = []
    for old, new in version.kept():
        if version.captures(new.name) and not version.captures(old.name):
            change = SchemaChange(ChangeKind.RENAME_COLUMN, new.name, new.attnum, before=old.name)
            reason = f"Column {old.name} of {version.base.id} was excluded and is now captured as {new.name}."
            out.append(Unseen(change, reason))
    return out


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether every value of ``narrow`` is a value of ``wide``, equal and of the same precision."""
    if wide.equals(narrow):
        return True
    if pa.types.is_decimal(wide) and pa.types.is_decimal(narrow):
        return bool(wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale)
    if pa.types.is_list(wide) and pa.types.is_list(narrow):
        return holds(wide.value_type, narrow.value_type)
    return False


def _rows(table: TableSchema) -> object:
    """Return the facts that every DDL on a column changes."""
    marks = table.marks
    return marks.server, marks.attributes, marks.columns
