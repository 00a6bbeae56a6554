"""Detects changes that the stream does not contain, by comparing a table's fingerprints of two moments.

Rows rewritten by ALTER TABLE, tables created again, partitions attached with rows, types altered for stored values,
changes that a publication left out in between: none of the changes found by ``unseen_changes`` can be applied to the
lake from the stream alone. If the fingerprints do not show whether values changed, they count as changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from cdc_core.schema.changes import ChangeKind, PauseCause, SchemaChange
from cdc_core.schema.fingerprint import ColumnMark, Fingerprint, PublicationMark, StorageMark, TypeMark
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableSchema


@dataclass(frozen=True, slots=True)
class Unseen:
    """One finding. ``reason`` is a sentence; with a ``cause`` a re-read of the table would not help yet.

    Then the user first does what ``action`` says (as in ``Decision``).
    """

    change: SchemaChange
    reason: str
    cause: PauseCause | None = None
    action: str = ""


class Heaps(IntEnum):
    """What happened to a table's heaps: the maximum applies."""

    SAME = 0
    REPLACED = 1  # by VACUUM FULL, CLUSTER, TRUNCATE or another tablespace; never by a rewrite of values
    PERHAPS_REWRITTEN = 2  # no TOAST table on one side, so REPLACED and REWRITTEN cannot be distinguished
    REWRITTEN = 3  # by ALTER TABLE


def unseen_changes(base: TableSchema, now: TableSchema) -> list[Unseen]:
    """Return the changes between the fingerprints of the two for which there is no event. Both must have one."""
    before, after = base.marks, now.marks
    if before.oid != after.oid:
        change = SchemaChange(ChangeKind.RECREATED)
        reason = f"Another table has the name {base.id} now."
        sent = after.publication
        if sent is not None and not sent.entries:
            return [Unseen(change, reason, PauseCause.NOT_PUBLISHED, f"Add {base.id} to the publication")]
        return [Unseen(change, reason)]
    out = [
        *_renamed(base, now),
        *_publication(base, before, after),
        *_logging(base, after),
        *_types(base, before, after),
    ]
    out += [*_partitions(base, before, after), *_rewrites(base, now), *_generation(base, now), *_key(base, now)]
    return out


def keeps_key(base: TableSchema, later: Fingerprint | None) -> bool:
    """Whether rows of ``base`` had different values of its key at all times since, also if it is keyless.

    True without fingerprints, too, which do not show it.
    """
    key = {column.attnum for column in base.columns if column.name in base.row_key}
    return not key or base.fingerprint is None or later is None or base.fingerprint.keeps_key(later, key)


def heaps(before: Fingerprint, after: Fingerprint) -> Heaps:
    """Return the maximum for the heaps that exist in both."""
    pairs = ((before.heap(mark.oid), mark) for mark in after.storage)
    return max((_heap(old, new) for old, new in pairs if old is not None), default=Heaps.SAME)


def is_streamed(column: Column, marks: Fingerprint | None) -> bool:
    """Whether the stream contains the column: if the column list has it, else all but unpublished generated ones."""
    publication = marks.publication if marks is not None else None
    listed = publication.columns if publication is not None else None
    if listed is not None:
        return column.attnum in listed
    if not column.generated and not column.is_generated:
        return True
    return publication is not None and publication.generated == "s" and column.generated == "s"


def streamed(table: TableSchema) -> TableSchema:
    """Return the table with the columns in the stream only: without generated ones before PostgreSQL 18."""
    kept = tuple(column for column in table.columns if is_streamed(column, table.fingerprint))
    return table if len(kept) == len(table.columns) else dataclasses.replace(table, columns=kept)


def is_untouched(before: Fingerprint, after: Fingerprint, attnum: int) -> bool:
    """Whether no DDL named a column that is live in both, so that its name and type were constant in between."""
    old, new = before.column(attnum), after.column(attnum)
    return before.is_exact and before.server == after.server and old is not None and old == new


def _heap(old: StorageMark, new: StorageMark) -> Heaps:
    if old.toast and new.toast and old.toast != new.toast:
        return Heaps.REWRITTEN
    if old.filenode == new.filenode:
        return Heaps.SAME
    return Heaps.REPLACED if old.toast and new.toast else Heaps.PERHAPS_REWRITTEN


def _renamed(base: TableSchema, now: TableSchema) -> Iterator[Unseen]:
    """Yield a finding if the table has its name again: its changes under the other one are not in this lake table."""
    before, after = base.marks, now.marks
    if base.id == now.id and before.may_have_been_renamed(after):
        reason = f"{base.id} had another name or schema meanwhile, and may have been changed under it."
        yield Unseen(SchemaChange(ChangeKind.MOVED), reason)


def _publication(base: TableSchema, before: Fingerprint, after: Fingerprint) -> Iterator[Unseen]:
    mine, theirs = before.publication, after.publication
    if mine is None or theirs is None:
        return
    change = SchemaChange(ChangeKind.PUBLICATION)
    if mine.entries and not theirs.entries:
        yield Unseen(
            change,
            f"The publication no longer publishes changes of {base.id}.",
            PauseCause.NOT_PUBLISHED,
            f"Add {base.id} to the publication again",
        )
    elif mine.entries and not theirs.is_own:
        names = "the name of the table of which it is a partition" if theirs.via_root else "the names of its partitions"
        setting = "true" if after.is_partitioned else "false"
        yield Unseen(
            change,
            f"The publication now sends the changes of {base.id} under {names}.",
            PauseCause.PUBLISHED_OTHERWISE,
            f"Exclude {base.id} from the capture, or set publish_via_partition_root = {setting} for the publication",
        )
    elif before.server == after.server and mine != theirs:
        yield Unseen(change, f"What is published of {base.id} was changed, and events may be missing.")
    elif _facts(mine) != _facts(theirs):
        yield Unseen(change, f"The publication on the new server publishes {base.id} differently.")


def _facts(mark: PublicationMark) -> object:
    """Return the facts that can be compared between servers: everything but oids and transaction ids."""
    entries = [dataclasses.replace(entry, oid=0, path="above" if entry.path else "") for entry in mark.entries]
    return dataclasses.replace(mark, oid=0, row="", entries=tuple(entries))


def _logging(base: TableSchema, after: Fingerprint) -> Iterator[Unseen]:
    if any(mark.is_unlogged for mark in after.storage):
        yield Unseen(
            SchemaChange(ChangeKind.UNLOGGED),
            f"{base.id}, or a partition of it, is UNLOGGED, and the WAL does not contain its changes.",
            PauseCause.UNLOGGED,
            f"ALTER TABLE {base.id.quoted} SET LOGGED",
        )


def _types(base: TableSchema, before: Fingerprint, after: Fingerprint) -> Iterator[Unseen]:
    known = {mark.oid: mark for mark in before.types}
    for mark in after.types:
        old = known.get(mark.oid)
        if old is None:
            continue
        if mark.kind == "c" and mark.parts != old.parts:
            change = SchemaChange(ChangeKind.TYPE_ALTERED)
            yield Unseen(change, f"Attributes of a composite type used by {base.id} were added or dropped.")
        if mark.kind == "b" and mark.parts != old.parts:
            change = SchemaChange(ChangeKind.TYPE_ALTERED)
            decimals = f"{mark.parts[0][0]} decimals now, and had {old.parts[0][0]}"
            yield Unseen(change, f"By the database's lc_monetary, amounts of money in {base.id} have {decimals}.")
        labels = dict(mark.parts)
        if mark.kind == "e" and any(labels.get(oid) != label for oid, label in old.parts):
            change = SchemaChange(ChangeKind.TYPE_ALTERED)
            yield Unseen(change, f"Labels of an enum used by {base.id} were renamed.")
        elif mark.kind == "e" and before.server == after.server and _was_relabelled(old, mark):
            change = SchemaChange(ChangeKind.TYPE_ALTERED)
            yield Unseen(change, f"Labels of an enum used by {base.id} had other names meanwhile.")


def _was_relabelled(old: TypeMark, new: TypeMark) -> bool:
    """Whether labels that have their names again were renamed: rows written meanwhile were sent with other names."""
    rows = {oid: row for (oid, _), row in zip(new.parts, new.rows, strict=True)}
    return any(rows.get(oid) != row for (oid, _), row in zip(old.parts, old.rows, strict=True))


def new_types(base: TableSchema, now: TableSchema) -> list[Unseen]:
    """Return types of new columns that were altered since the first moment: events may have other labels.

    This is relevant if the second moment may be ahead of the stream.
    """
    before, after = base.marks, now.marks
    known = {mark.oid for mark in before.types}
    if all(mark.oid in known or mark.changed < before.horizon for mark in after.types if mark.changed):
        return []
    change = SchemaChange(ChangeKind.TYPE_ALTERED)
    return [Unseen(change, f"The type of a new column of {base.id} was altered, possibly after values were written.")]


def _partitions(base: TableSchema, before: Fingerprint, after: Fingerprint) -> Iterator[Unseen]:
    if not after.is_partitioned or before.publication is None or not before.publication.via_root:
        return
    change = SchemaChange(ChangeKind.PARTITIONS)
    known = {mark.oid: mark for mark in before.storage}
    if any(mark.oid not in known and not mark.is_own and not mark.is_empty for mark in after.storage):
        yield Unseen(change, f"A table with rows was attached to {base.id} as a partition.")
    if known.keys() - {mark.oid for mark in after.storage}:
        yield Unseen(change, f"A partition of {base.id} was detached or dropped with its rows.")
    both = [(known[mark.oid], mark) for mark in after.storage if mark.oid in known]
    # Transaction ids of two servers cannot be compared.
    if before.server == after.server and any(old.path != new.path for old, new in both):
        yield Unseen(change, f"A partition of {base.id} was detached and attached again.")
    # PostgreSQL sends a TRUNCATE of the root only; VACUUM FULL of a partition changes the same facts as its TRUNCATE.
    if any(old.filenode != new.filenode for old, new in both):
        yield Unseen(change, f"A partition of {base.id} was truncated, or its rows were rewritten.")


def _rewrites(base: TableSchema, now: TableSchema) -> Iterator[Unseen]:
    before, after = base.marks, now.marks
    happened = heaps(before, after)
    if happened is Heaps.REPLACED and after.publication is not None and after.publication.lacks_truncates:
        yield Unseen(
            SchemaChange(ChangeKind.REWRITTEN),
            f"The rows of {base.id} were truncated, or written again (VACUUM FULL, CLUSTER), and the output plug-in "
            "does not send truncates.",
        )
    if happened < Heaps.PERHAPS_REWRITTEN:
        return
    if before.server != after.server:
        yield Unseen(SchemaChange(ChangeKind.REWRITTEN), f"The rows of {base.id} were rewritten on another server.")
        return
    # PostgreSQL refuses to alter the type of a column while it is in a publication's column list.
    fixed = (after.publication.columns if after.publication == before.publication and after.publication else None) or ()
    altered = [
        column
        for column in base.columns
        if is_streamed(column, before) and column.attnum not in fixed
        if _may_be_altered(before.column(column.attnum), after.column(column.attnum))
    ]
    change = SchemaChange(ChangeKind.REWRITTEN, ", ".join(column.name for column in altered))
    rewritten = f"The rows of {base.id} were rewritten"
    named = ", ".join(column.name for column in altered if _is_named(column, base, now))
    if named:
        yield Unseen(dataclasses.replace(change, column=named), f"{rewritten} by ALTER TABLE, column {named} altered.")
    elif altered:
        unsure = f"the catalogue does not show whether this changed column {change.column}"
        yield Unseen(change, f"{rewritten} by ALTER TABLE, and {unsure}.")
    elif after.publication is not None and (after.is_partitioned or not after.publication.is_listed):
        # Only a table that a publication names itself can never be UNLOGGED; while it was, its changes were lost.
        yield Unseen(change, f"{rewritten}, and the table may have been UNLOGGED meanwhile.")


def _may_be_altered(old: ColumnMark | None, new: ColumnMark | None) -> bool:
    """Whether an ALTER COLUMN may have changed the values of a column that is live in both.

    Each ALTER COLUMN TYPE and SET EXPRESSION changes the column's row and creates its default again. A row changes for
    other reasons, too: a rewrite clears the missing value, and an ALTER COLUMN TYPE may change the rows of all columns
    behind its own (``fingerprint``).
    """
    if old is None or new is None or old.row == new.row:
        return False
    return old.default == 0 or old.default != new.default


def _is_named(column: Column, base: TableSchema, now: TableSchema) -> bool:
    """Whether an altered column's row did not change merely because an earlier column was altered."""
    before, after = base.marks, now.marks
    new, old = after.column(column.attnum), before.column(column.attnum)
    present = next((candidate for candidate in now.columns if candidate.attnum == column.attnum), column)
    if new is None or old is None or (present.type.oid, present.modifier) != (column.type.oid, column.modifier):
        return True
    earlier = ((before.column(mark.attnum), mark) for mark in after.columns if mark.attnum < column.attnum)
    return old.default != new.default or not any(
        mark.row == new.row and known is not None and known.row != mark.row for known, mark in earlier
    )


def _key(base: TableSchema, now: TableSchema) -> Iterator[Unseen]:
    """Yield a finding if several rows may have had the key by which changes found them: it did not exist all the time.

    Without REPLICA IDENTITY FULL the server refuses such updates and deletes, and names the key in each Relation. Of a
    partitioned table the identities of its partitions decide. Rows with a null in their key are gone once its columns
    are NOT NULL again, and no row of before had it.
    """
    after, nullable = now.marks, {column.attnum for column in now.columns if column.optional}
    key = [column for column in base.columns if column.name in base.row_key]
    is_nullable = any(not column.optional and column.attnum in nullable for column in key)
    is_unchecked = base.identity is ReplicaIdentity.FULL or after.is_partitioned
    if is_unchecked and (is_nullable or not keeps_key(base, after)):
        reason = f"The key of {base.id} was dropped, or dropped and created again: rows may have had equal keys."
        yield Unseen(SchemaChange(ChangeKind.CHANGE_KEY, before=", ".join(base.row_key)), reason)


def _generation(base: TableSchema, now: TableSchema) -> Iterator[Unseen]:
    before, after = base.marks, now.marks
    for column in now.columns:
        mark = before.column(column.attnum)
        if mark is not None and mark.generated and not column.generated and is_streamed(column, after):
            change = SchemaChange(ChangeKind.GENERATED, column.name, column.attnum)
            yield Unseen(
                change, f"Column {column.name} of {base.id} was a generated column and is now a regular column."
            )
