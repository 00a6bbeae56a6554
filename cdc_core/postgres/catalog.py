"""pg_class, pg_attribute, pg_index → TableSchema: what the tables are, at the moment of asking.

A Relation message says how the tuples behind it are written and which columns identify rows; it says nothing of
nullability, defaults or keys. Those come from the catalogue of the moment, which may be ahead of the stream, so the
Relation wins where both describe the same thing. ``resolve_relation`` returns both separately, for finding out what
changed.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg.pq import TransactionStatus

from cdc_core.postgres.connect import Connection
from cdc_core.postgres.fingerprints import fingerprints
from cdc_core.postgres.foreign_keys import foreign_keys
from cdc_core.postgres.key_bounds import KeyBounds, key_bounds
from cdc_core.postgres.leaves import Leaf, estimated_rows, leaves
from cdc_core.postgres.sqlstate import translated
from cdc_core.postgres.type_catalog import TypeCatalog
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.foreign_key import ForeignKey
from cdc_core.schema.relation import Relation, ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema

# Ordinary and partitioned tables.
_NAMES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text, obj_description(c.oid, 'pg_class')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp_)'
"""
# What looks like a table, and whose rows are stored elsewhere.
_NO_TABLES = """
SELECT n.nspname, c.relname,
       CASE c.relkind WHEN 'f' THEN 'foreign table' WHEN 'm' THEN 'materialized view' ELSE 'view' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm', 'f')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp_)' ORDER BY 1, 2
"""
# A temporary or unlogged table never reaches a slot.
_LOGGED = "c.relpersistence = 'p'"
# pg_get_expr takes a lock on the table that it is given, and waits for an ALTER TABLE of hours. A default names no
# columns and needs none; a generated column's expression, which stands where a default would, does and is left out.
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.atttypid::bigint, a.atttypmod,
       NOT a.attnotnull AND NOT coalesce(t.typnotnull, false),
       e.text, {generated}, coalesce(e.text LIKE '%%nextval(%%', false),
       col_description(a.attrelid, a.attnum), a.attnum::int, {kind}, {missing}
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_type t ON t.oid = a.atttypid AND t.typtype = 'd'
CROSS JOIN LATERAL (SELECT CASE WHEN {kind} = '' THEN pg_get_expr(d.adbin, 0) END) AS e(text)
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""
# A partitioned table keeps no missing values, its leaves do, each its own.
_LEAVES = """
WITH RECURSIVE held(root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY(%s::oid[]) AND c.relkind = 'p'
    UNION ALL
    SELECT h.root, i.inhrelid FROM held h JOIN pg_inherits i ON i.inhparent = h.oid
)
SELECT h.root::bigint, a.attname, count(*) FILTER (WHERE NOT a.atthasmissing),
       min(array_to_string(a.attmissingval, '')), max(array_to_string(a.attmissingval, ''))
FROM held h JOIN pg_class c ON c.oid = h.oid AND c.relkind = 'r'
JOIN pg_attribute a ON a.attrelid = h.oid AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY h.root, a.attname HAVING bool_or(a.atthasmissing)
"""
# Valid unique indexes over plain columns. The clustered one comes first, then by name, as JDBC lists them.
_INDEXES = """
SELECT i.indrelid::bigint, i.indisprimary, i.indisreplident, x.relname,
       (SELECT array_agg(a.attname::text ORDER BY k.place)
        FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum),
       {key_columns}, i.indpred IS NOT NULL, i.indimmediate
FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
WHERE i.indrelid = ANY(%s::oid[]) AND i.indisunique AND i.indisvalid AND i.indexprs IS NULL
ORDER BY i.indrelid, i.indisclustered DESC, x.relname COLLATE "C"
"""
_ROW_FILTER = """
SELECT pg_get_expr(sent.qual, sent.relid)
FROM pg_publication p, pg_get_publication_tables(p.pubname) AS sent
WHERE p.pubname = %s AND sent.relid = %s
"""
_SIZES = """
SELECT c.oid::bigint, c.reltuples::float8, c.relpages, c.relkind = 'p', has_table_privilege(c.oid, 'SELECT'),
       CASE WHEN c.relkind = 'p' THEN 0 ELSE pg_relation_size(c.oid) / current_setting('block_size')::int END
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """``pages`` counted now, 0 for an empty or a partitioned table; ``rows`` the planner's guess for that many pages,
    None where the table was never analysed. ``has_ctid`` says whether the role may ask for ``ctid``, which takes the
    privilege for the whole table.
    """

    pages: int
    rows: int | None
    has_ctid: bool = True


@dataclass(frozen=True, slots=True)
class ResolvedRelation:
    """A table at a Relation message: ``announced`` as ``Catalog.describe`` gives it; ``current`` as the catalogue holds
    it at the moment of asking, with every live column and marks, perhaps under another oid; None where it no longer
    exists.
    """

    announced: TableSchema
    current: TableSchema | None


@dataclass(slots=True)
class _Facts:
    """What the catalogue holds of one table."""

    id: TableId
    identity: ReplicaIdentity
    comment: str | None
    columns: dict[str, Column] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    index_key: tuple[str, ...] = ()
    is_key_deferrable: bool = False
    identity_index: str | None = None
    identity_index_key: tuple[str, ...] = ()
    fingerprint: Fingerprint | None = None


class Catalog:
    """Reads table descriptions over one connection, a few queries for any number of tables. Threads may share it.

    ``publication`` names the publication whose column lists and row filters belong to the tables' fingerprints.
    """

    def __init__(self, connection: Connection, publication: str = "") -> None:
        self._connection = connection
        self._publication = publication
        self._lock = threading.Lock()
        self.types = TypeCatalog(connection)

    def tables(self, includes: Callable[[TableId], bool]) -> list[TableSchema]:
        """Every included table, partitioned tables and their partitions each, ordered by name.

        Raises SourceError or TransientError.
        """
        with self._lock:
            facts = self._read(includes=includes)
            found = [_schema(oid, table) for oid, table in facts.items()]
        return sorted(found, key=lambda table: table.id)

    def describe(self, relation: Relation) -> TableSchema:
        """The table as the Relation announces it, completed from the catalogue of the moment.

        A column that the catalogue no longer knows is optional and has no default; a key column that the Relation does
        not have comes from the future and is left out. It has no marks. Raises SourceError or TransientError.
        """
        with self._lock:
            _, known = self._find(relation, _LOGGED, with_marks=False)
            return self._completed(relation, known)

    def resolve_relation(self, relation: Relation) -> ResolvedRelation:
        """The table as announced, and as the catalogue holds it, unlogged tables included; both of one state.

        Raises SourceError or TransientError.
        """
        with self._lock:
            oid, known = self._find(relation, "true", with_marks=True)
            return ResolvedRelation(self._completed(relation, known), None if known is None else _schema(oid, known))

    def current(self, name: TableId) -> TableSchema | None:
        """The table of that name, unlogged ones included; None where there is none. Raises as ``tables`` does."""
        with self._lock:
            facts = self._read("n.nspname = %s AND c.relname = %s", (name.schema, name.table))
            return next((_schema(oid, table) for oid, table in facts.items()), None)

    def fingerprints(self, oids: Iterable[int]) -> dict[int, Fingerprint]:
        """Table oid → its marks now, by two queries; a table that no longer exists is left out.

        Cheap enough to ask every few seconds for changes that no change of a row followed. Raises SourceError or
        TransientError.
        """
        with self._lock, self._one_state("reading table metadata"):
            return fingerprints(self._connection, oids, self._publication)

    def row_filter(self, table: TableSchema) -> str:
        """The condition of the publication's row filter, empty for none. Raises SourceError or TransientError."""
        if not self._publication or self._connection.info.server_version < 150000:
            return ""
        with self._lock, translated("reading the publication's row filter"):
            row = self._connection.execute(_ROW_FILTER, (self._publication, table.oid)).fetchone()
        return str(row[0]) if row and row[0] else ""

    def names(self) -> list[TableId]:
        """Every table that could be captured, ordered."""
        with self._lock, translated("listing tables"):
            rows = self._connection.execute(f"{_NAMES} AND {_LOGGED}").fetchall()
            return sorted(TableId(row[1], row[2]) for row in rows)

    def no_tables(self) -> dict[TableId, str]:
        """What has rows and is no table that could be captured: ``view``, ``materialized view``, ``foreign table``."""
        with self._lock, translated("listing views and foreign tables"):
            return {TableId(row[0], row[1]): row[2] for row in self._connection.execute(_NO_TABLES).fetchall()}

    def identity_indexes(self, tables: Sequence[TableSchema]) -> dict[TableId, str]:
        """Name of the index that is the replica identity, for tables that have USING INDEX."""
        with self._lock:
            facts = self._read("c.oid = ANY(%s::oid[])", ([table.oid for table in tables],))
        return {table.id: table.identity_index for table in facts.values() if table.identity_index}

    def sizes(self, tables: Iterable[TableSchema]) -> dict[TableId, TableSize]:
        """Pages and estimated rows, for planning; a table that no longer exists is left out."""
        by_oid = {table.oid: table.id for table in tables}
        with self._lock, translated("reading the sizes of tables"):
            rows = self._connection.execute(_SIZES, (list(by_oid),)).fetchall()
        return {
            by_oid[oid]: TableSize(0 if is_root else pages, _rows(tuples, known_pages, is_root, pages), bool(has_ctid))
            for oid, tuples, known_pages, is_root, has_ctid, pages in rows
        }

    def foreign_keys(self) -> list[ForeignKey]:
        """Every foreign key of the database. Raises SourceError or TransientError."""
        with self._lock, translated("reading foreign keys"):
            return foreign_keys(self._connection)

    def key_bounds(self, table: TableSchema, column: str) -> KeyBounds | None:
        """The span of an integer column that an index leads with; None for an empty table, or where the server refuses.

        Raises SourceError or TransientError.
        """
        with self._lock, translated("reading the bounds of a table's key"):
            return key_bounds(self._connection, table, column)

    def leaves(self, root: TableSchema, *, is_filtered: bool) -> tuple[Leaf, ...]:
        """The leaf partitions that may be read by their own names; none where the table is to be read under its own.

        ``is_filtered``: by the publication's row filter. Raises SourceError or TransientError.
        """
        with self._lock, translated("listing the partitions of a table"):
            return leaves(self._connection, root, is_filtered=is_filtered)

    def _find(self, relation: Relation, condition: str, *, with_marks: bool) -> tuple[int, _Facts | None]:
        """What the catalogue holds of a relation, by oid, else by name."""
        facts = self._read(f"c.oid = %s AND {condition}", (relation.oid,), with_marks=with_marks)
        if not facts:
            # Dropped and perhaps made again since: the table that bears the name now is the best description left.
            name = (relation.namespace, relation.name)
            facts = self._read(f"n.nspname = %s AND c.relname = %s AND {condition}", name, with_marks=with_marks)
        self.types.load(column.type_oid for column in relation.columns)
        return next(iter(facts.items()), (relation.oid, None))

    @contextmanager
    def _one_state(self, doing: str) -> Iterator[None]:
        """All queries inside see one state of the catalogue, with the server's errors translated."""
        with translated(doing):
            if self._connection.info.transaction_status is not TransactionStatus.IDLE:
                yield
                return
            with self._connection.transaction():
                self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                yield

    def _read(
        self,
        condition: str = _LOGGED,
        arguments: tuple[Any, ...] = (),
        includes: Callable[[TableId], bool] | None = None,
        *,
        with_marks: bool = True,
    ) -> dict[int, _Facts]:
        with self._one_state("reading the catalogue"):
            facts = {
                oid: _Facts(TableId(namespace, name), ReplicaIdentity(identity), comment)
                for oid, namespace, name, identity, comment in self._connection.execute(
                    f"{_NAMES} AND {condition}", arguments or None
                ).fetchall()
                if includes is None or includes(TableId(namespace, name))
            }
            if not facts:
                return facts
            version = self._connection.info.server_version
            key_columns = "i.indnkeyatts" if version >= 110000 else "i.indnatts"
            columns = self._connection.execute(_columns_query(version), (list(facts),)).fetchall()
            indexes = self._connection.execute(_INDEXES.format(key_columns=key_columns), (list(facts),)).fetchall()
            leaves = self._connection.execute(_LEAVES, (list(facts),)).fetchall() if version >= 110000 else []
            wanted = facts if with_marks else ()
            for oid, marks in fingerprints(self._connection, wanted, self._publication).items():
                facts[oid].fingerprint = marks
            self.types.load(row[2] for row in columns)
        in_leaves = {(row[0], row[1]): (True, row[3] if row[2] == 0 and row[3] == row[4] else None) for row in leaves}
        for oid, name, type_oid, modifier, optional, default, is_generated, is_serial, comment, *kept in columns:
            attnum, kind, *missing = kept
            facts[oid].columns[name] = Column(
                name, self.types[type_oid], modifier, optional, default, is_generated, is_serial, comment,
                attnum, kind, *in_leaves.get((oid, name), missing),
            )  # fmt: skip
        self._add_indexes(facts, indexes)
        return facts

    @staticmethod
    def _add_indexes(facts: dict[int, _Facts], indexes: list[tuple[Any, ...]]) -> None:
        for oid, is_primary, is_identity, name, columns, count, is_partial, is_immediate in indexes:
            found, listed = facts[oid], tuple(columns or ())
            key = listed[:count]
            if is_primary:
                found.primary_key, found.is_key_deferrable = key, not is_immediate
            else:
                found.index_key = found.index_key or listed
                if is_immediate and not is_partial:
                    found.unique_key = found.unique_key or key
            if is_identity:
                found.identity_index, found.identity_index_key = name, key

    def _completed(self, relation: Relation, known: _Facts | None) -> TableSchema:
        columns = []
        for announced in relation.columns:
            column = known.columns.get(announced.name) if known else None
            if column is None:
                column = Column(announced.name, self.types[announced.type_oid])
            columns.append(
                dataclasses.replace(column, type=self.types[announced.type_oid], modifier=announced.type_modifier)
            )
        names = {column.name for column in columns}
        flagged = tuple(column.name for column in relation.columns if column.is_identity)
        primary_key = tuple(name for name in (known.primary_key if known else ()) if name in names)
        if relation.identity is ReplicaIdentity.DEFAULT and flagged and set(flagged) != set(primary_key):
            # Under DEFAULT the flagged columns are the primary key as it was when these rows were written.
            primary_key = flagged
        unique_key = known.unique_key if known and set(known.unique_key) <= names else ()
        index_key = tuple(name for name in (known.index_key if known else ()) if name in names)
        return TableSchema(
            TableId(relation.namespace, relation.name),
            relation.oid,
            tuple(columns),
            primary_key,
            unique_key,
            relation.identity,
            flagged,
            comment=known.comment if known else None,
            index_key=index_key,
            fingerprint=known.fingerprint if known else None,
            is_key_deferrable=known.is_key_deferrable if known else False,
        )


def _schema(oid: int, facts: _Facts) -> TableSchema:
    identity_key = {
        ReplicaIdentity.DEFAULT: facts.primary_key,
        ReplicaIdentity.FULL: tuple(facts.columns),
        ReplicaIdentity.INDEX: facts.identity_index_key,
        ReplicaIdentity.NOTHING: (),
    }[facts.identity]
    in_order = tuple(name for name in facts.columns if name in identity_key)
    return TableSchema(
        facts.id,
        oid,
        tuple(facts.columns.values()),
        facts.primary_key,
        facts.unique_key,
        facts.identity,
        in_order,
        comment=facts.comment,
        index_key=facts.index_key,
        fingerprint=facts.fingerprint,
        is_key_deferrable=facts.is_key_deferrable,
    )


def _columns_query(version: int) -> str:
    return _COLUMNS.format(
        generated="a.attgenerated <> ''" if version >= 120000 else "false",
        kind="a.attgenerated::text" if version >= 120000 else "''",
        # The array of one element as text, whatever the element's type and delimiter.
        missing="a.atthasmissing, array_to_string(a.attmissingval, '')" if version >= 110000 else "false, NULL",
    )


def _rows(tuples: float, known_pages: int, is_partitioned: bool, pages: int) -> int | None:
    if is_partitioned:
        return round(tuples) if tuples > 0 else None
    return estimated_rows(tuples, known_pages, pages)
