"""Facts of the catalogue about a table that show changes which the stream does not contain.

A slot receives nothing about a rewrite of a table's rows by ALTER TABLE. Measured on PostgreSQL 15 and 18, it is
visible in:

    pg_class.reltoastrelid   a rewrite by ALTER TABLE makes a new TOAST table; VACUUM FULL, CLUSTER, TRUNCATE keep it
    pg_class.relfilenode     changes with every rewrite, with VACUUM FULL, CLUSTER, TRUNCATE, SET TABLESPACE too
    pg_attribute's xmin      changes for each column that an ALTER COLUMN named, whether or not its rows were rewritten;
                             since November 2026 (15.20) also for all columns behind one whose type was altered
    atthasmissing            is cleared by every rewrite, including VACUUM FULL and CLUSTER (which changes xmin too)
    pg_attrdef's oid         changes with ALTER COLUMN TYPE of a column with a default, stays at VACUUM FULL
    pg_index, pg_constraint  show whether a key was dropped and created again (``KeyMark``)

The servers of November 2026 keep a version of the row type, ``pg_attver``, in pg_attribute.attoptions of each column
from the altered one on (CVE-2026-6460). So an equal row proves that no ALTER named the column, but a different one does
not prove the opposite: where it matters, the column counts as altered unless its default proves that it was not.

Transaction ids are compared for equality only, as text: they wrap around.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class ColumnMark:
    """One live column. ``row`` is the xmin of its pg_attribute row, ``default`` its pg_attrdef row's oid (0: none).

    ``generated`` is attgenerated.
    """

    attnum: int
    row: str
    default: int
    has_missing: bool
    generated: str = ""


@dataclass(frozen=True, slots=True)
class StorageMark:
    """One heap: the table's own, or a leaf's of a partitioned table.

    ``toast`` is 0 if no column can be toasted. ``is_unlogged`` heaps write no WAL. For a leaf, ``is_own`` means that it
    was created as a partition of its parent (an attached table may contain rows that were never in the stream),
    ``is_empty`` that it had no page when read, and ``path`` contains the xmin of the pg_inherits rows up to the table:
    it differs after the leaf was detached and attached again. A table's own heap has True, False and an empty path.
    """

    oid: int
    filenode: int
    toast: int
    is_unlogged: bool
    is_own: bool = True
    is_empty: bool = False
    path: str = ""


@dataclass(frozen=True, slots=True)
class PublicationEntry:
    """One reason why the publication sends a table: ``kind`` a (all tables), s (its schema) or t (a listed table).

    ``oid`` is that of the row in pg_publication, pg_publication_namespace or pg_publication_rel: it differs after the
    table was removed and listed again. ``path`` contains the xmin of the pg_inherits rows up to the listed ancestor,
    empty for the table itself. ``columns`` are the column list's attnums, None for all; ``is_filtered``: there is a row
    filter.
    """

    kind: str
    oid: int
    path: str = ""
    columns: tuple[int, ...] | None = None
    is_filtered: bool = False


@dataclass(frozen=True, slots=True)
class PublicationMark:
    """What a publication sends of one table.

    ``row`` is the xmin of its pg_publication row: it differs after settings were changed, even if they were changed
    back; it does not change if tables are added and dropped. ``operations`` are letters of c, u, d, t; ``generated`` is
    's' if stored generated columns are sent (PostgreSQL 18). No ``entries``: nothing is sent. ``is_own``: changes are
    sent under the table's own name, not under that of its partitions or of an ancestor.
    """

    oid: int
    row: str
    operations: str
    via_root: bool
    generated: str
    entries: tuple[PublicationEntry, ...]
    is_own: bool = True

    def __post_init__(self) -> None:
        # Several entries may have one oid, and the server returns them in any order.
        object.__setattr__(self, "entries", tuple(sorted(self.entries, key=_place)))

    @property
    def columns(self) -> frozenset[int] | None:
        """The attnums of the table's own column list, None if it has none."""
        for entry in self.entries:
            if entry.kind == "t" and not entry.path and entry.columns is not None:
                return frozenset(entry.columns)
        return None

    @property
    def lacks_truncates(self) -> bool:
        """Whether it describes an output plug-in without publications that does not send truncates."""
        return self.oid == 0 and bool(self.entries) and "t" not in self.operations

    @property
    def is_listed(self) -> bool:
        """Whether the publication names the table itself. The server then does not allow it to be UNLOGGED."""
        return any(entry.kind == "t" and not entry.path for entry in self.entries)


@dataclass(frozen=True, slots=True)
class TypeMark:
    """A type of a column's values that may become another one.

    ``parts`` are an enum's (label oid, label) pairs in sort order, or a composite's (attnum, "") pairs: what an ALTER
    TYPE changes for values that are stored already. Of money (kind b) they are its decimals, (number, ""). ``changed``
    is the transaction id (64 bits) of the last change of one of them, 0 if all are as created by CREATE TYPE. ``rows``
    are the xmin of the labels' pg_enum rows, in the order of ``parts``: a label that was renamed and renamed back has
    another one.
    """

    oid: int
    kind: str
    parts: tuple[tuple[int, str], ...]
    changed: int = 0
    rows: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class KeyMark:
    """One valid unique index.

    ``columns`` are the attnums of its key, empty if it does not keep all rows apart by them: over expressions, of some
    rows only, or deferrable. ``constraint`` is the oid of its constraint (0: none). ``row`` is the xmin of its
    pg_index row, ``flags`` what else that row records: c clustered, i replica identity, p primary key, x indcheckxmin.

    Measured on PostgreSQL 15 and 18:

        REINDEX, VACUUM FULL, CLUSTER, TRUNCATE   other filenode; CLUSTER may set a flag, and another row with it
        REINDEX CONCURRENTLY                      other index, filenode and row; the constraint stays
        ALTER COLUMN TYPE without a rewrite       other index, constraint and row; the filenode stays
        ADD CONSTRAINT USING INDEX, RENAME        the index stays
        DROP, CREATE                              all others
        DROP INDEX CONCURRENTLY that was ended
        half-way, then REINDEX                    other filenode and row; the index and its flags stay
    """

    index: int
    constraint: int
    columns: tuple[int, ...]
    filenode: int = field(default=0, compare=False)
    row: str = field(default="", compare=False)
    flags: str = field(default="", compare=False)

    @property
    def place(self) -> tuple[int, int]:
        """The index and its file."""
        return self.index, self.filenode

    def continues(self, later: KeyMark) -> bool:
        """Whether ``later`` is this index, which kept rows apart at all times in between.

        REINDEX CONCURRENTLY of an index without a constraint leaves nothing that proves it.
        """
        if not self.columns or not later.columns:
            return False
        was_invalid = self.row != later.row and self.filenode != later.filenode and self.flags == later.flags
        return (
            (self.constraint == later.constraint != 0)
            or (self.index == later.index and not was_invalid)
            or (self.filenode == later.filenode != 0)
        )


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of one table, equal as long as no DDL changed it.

    ``server`` is the system identifier: transaction ids and the oids of publications of two servers cannot be compared.
    ``attributes`` is pg_class.relnatts: the highest attnum ever assigned. ``keys`` are the valid unique indexes, in
    fingerprints of versions that the stream announced only those that also existed before. ``comments`` changes with a
    comment on the table or a column. ``publication`` is None if no publication was queried.

    ``naming`` is the xmin of the pg_type row of the table's row type: RENAME, SET SCHEMA and OWNER TO write it, no
    other ALTER TABLE does. ``owner`` is the owner's oid.

    The last four fields are not compared. ``is_exact`` is False if the fingerprint was read later than the version's
    position in the stream, so that DDL may have been executed in between. All transactions below ``horizon`` (64 bits)
    had ended when the fingerprint was read.
    """

    server: str
    oid: int
    namespace: str
    name: str
    attributes: int
    identity: str
    is_partitioned: bool
    columns: tuple[ColumnMark, ...]
    storage: tuple[StorageMark, ...]
    keys: tuple[KeyMark, ...] = ()
    comments: str = ""
    types: tuple[TypeMark, ...] = ()
    publication: PublicationMark | None = None
    is_exact: bool = field(default=True, compare=False)
    horizon: int = field(default=0, compare=False)
    naming: str = field(default="", compare=False)
    owner: int = field(default=0, compare=False)

    def may_have_been_renamed(self, later: Fingerprint) -> bool:
        """Whether the table may have had another name or schema before ``later``. False if one of them is unknown.

        A change of the owner explains the difference, unless the publication depends on the schema: in another one the
        changes are not published at all.
        """
        if self.server != later.server or not self.naming or not later.naming or self.naming == later.naming:
            return False
        sent = later.publication
        return self.owner == later.owner or (sent is not None and any(entry.kind == "s" for entry in sent.entries))

    def keeps_key(self, later: Fingerprint, columns: Collection[int]) -> bool:
        """Whether one index kept rows apart by columns (attnums) at all times between the two."""
        return any(set(mark.columns).issubset(columns) for mark in later.kept_keys(self))

    def kept_keys(self, earlier: Fingerprint) -> tuple[KeyMark, ...]:
        """Return the marks of indexes that kept rows apart at all times since ``earlier``."""
        is_same = earlier.server == self.server
        return tuple(
            mark
            for mark in self.keys
            # pg_upgrade keeps both; other oids of another server may be equal by chance.
            if any((is_same or old.place == mark.place) and old.continues(mark) for old in earlier.keys)
        )

    def is_same(self, later: Fingerprint) -> bool:
        """Whether the two are equal, and no name and no key was changed and changed back in between."""
        keys = tuple(mark for mark in self.keys if mark.columns)
        return self == later and not self.may_have_been_renamed(later) and keys == later.kept_keys(self)

    def without_rows(self) -> Fingerprint:
        """Return it without the state that rows change: an empty partition may get rows."""
        storage = tuple(dataclasses.replace(mark, is_empty=False) for mark in self.storage)
        return dataclasses.replace(self, storage=storage)

    def is_unaltered(self, later: Fingerprint) -> bool:
        """Whether no DDL was executed on the table between the two, not even one and its opposite."""
        return self.without_rows().is_same(later.without_rows())

    def column(self, attnum: int) -> ColumnMark | None:
        """Return the mark of a column, None if it was not live."""
        return next((mark for mark in self.columns if mark.attnum == attnum), None)

    def heap(self, oid: int) -> StorageMark | None:
        """Return the mark of a heap, None if it was not part of the table."""
        return next((mark for mark in self.storage if mark.oid == oid), None)

    def to_json(self) -> str:
        """Return a text that ``from_json`` converts to an equal value."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls.from_plain(json.loads(text))

    @classmethod
    def from_plain(cls, raw: dict[str, Any]) -> Self:
        """Create a fingerprint from the dictionaries and lists of ``dataclasses.asdict`` and JSON."""
        publication = raw["publication"]
        return cls(
            **{
                **raw,
                "columns": tuple(ColumnMark(**mark) for mark in raw["columns"]),
                "storage": tuple(StorageMark(**mark) for mark in raw["storage"]),
                "keys": tuple(KeyMark(**{**mark, "columns": tuple(mark["columns"])}) for mark in raw["keys"]),
                "types": tuple(_type(mark) for mark in raw["types"]),
                "publication": None if publication is None else _publication(publication),
            }
        )


def _place(entry: PublicationEntry) -> tuple[object, ...]:
    return entry.kind, entry.oid, entry.path, entry.columns is not None, entry.columns or (), entry.is_filtered


def _type(raw: dict[str, Any]) -> TypeMark:
    parts = tuple((oid, label) for oid, label in raw["parts"])
    return TypeMark(**{**raw, "parts": parts, "rows": tuple(raw["rows"])})


def _publication(raw: dict[str, Any]) -> PublicationMark:
    entries = []
    for entry in raw["entries"]:
        columns = entry["columns"]
        entries.append(PublicationEntry(**{**entry, "columns": None if columns is None else tuple(columns)}))
    return PublicationMark(**{**raw, "entries": tuple(entries)})
