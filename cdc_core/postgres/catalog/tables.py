"""pg_class, pg_attribute, pg_index → TableSchema: the tables in the catalogue when it is queried.

A Relation message contains the format of the tuples that follow it and the columns that identify rows, but not
nullability, defaults or keys. These are read from the current catalogue, which may be ahead of the stream, so the
Relation has precedence for facts that both contain. ``resolve_relation`` returns both separately, to detect what
changed.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg.pq import TransactionStatus

from cdc_core.postgres.catalog.fingerprints import fingerprints, marks_stamp
from cdc_core.postgres.catalog.key_bounds import KeyBounds, key_bounds
from cdc_core.postgres.catalog.leaves import Leaf, estimated_rows, leaves
from cdc_core.postgres.catalog.types import TypeCatalog
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.server import is_running
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.schema import (
    Column,
    Fingerprint,
    PublicationMark,
    Relation,
    ReplicaIdentity,
    TableId,
    TableSchema,
    is_streamed,
)

_log = logging.getLogger(__name__)

_SHOWN_SECONDS = 5.0
_PAUSE_SECONDS = 0.01

# Ordinary and partitioned tables.
_NAMES = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text, obj_description(c.oid, 'pg_class')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp_)'
"""
# Relations that look like tables, but whose rows are stored elsewhere; and tables whose changes are not in the WAL.
_NO_TABLES = """
SELECT n.nspname, c.relname,
       CASE c.relkind WHEN 'f' THEN 'foreign table' WHEN 'm' THEN 'materialized view' WHEN 'v' THEN 'view'
                      ELSE 'unlogged table' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (c.relkind IN ('v', 'm', 'f') OR c.relkind IN ('r', 'p') AND c.relpersistence = 'u')
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp_)' ORDER BY 1, 2
"""
# A slot never receives changes of a temporary or unlogged table.
_LOGGED = "c.relpersistence = 'p'"
# pg_get_expr locks the table that it is given, and would wait for an ALTER TABLE of hours. A default contains no
# columns and needs no lock; a generated column's expression, which is stored like a default, needs it and is left out.
_COLUMNS = """
SELECT a.attrelid::bigint, a.attname, a.atttypid::bigint, a.atttypmod,
       NOT (a.attnotnull{validated}) AND NOT coalesce(t.typnotnull, false),
       e.text, {generated}, coalesce(e.text LIKE '%%nextval(%%', false),
       col_description(a.attrelid, a.attnum), a.attnum::int, {kind}, {missing}
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_type t ON t.oid = a.atttypid AND t.typtype = 'd'
CROSS JOIN LATERAL (SELECT CASE WHEN {kind} = '' THEN pg_get_expr(d.adbin, 0) END) AS e(text)
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
"""
# From PostgreSQL 18 on a NOT NULL constraint may be NOT VALID: older rows may have nulls.
_VALIDATED = """ AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conrelid = a.attrelid AND n.contype = 'n'
                                 AND n.conkey = ARRAY[a.attnum] AND NOT n.convalidated)"""
# A partitioned table has no missing values; each of its leaves has its own.
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
# Valid unique indexes over plain columns. The clustered one is first, then by name, as JDBC lists them.
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
# All of these update a row in pg_class (file, number of columns, partition) or pg_enum; of a key, by which changes
# under REPLICA IDENTITY FULL find their rows, one in pg_index or pg_attribute. Vacuum and analyze do so in place.
_STORAGE_STAMP = """
WITH RECURSIVE held(oid) AS (
    SELECT unnest(%s::oid[]) UNION SELECT i.inhrelid FROM held h JOIN pg_inherits i ON i.inhparent = h.oid
)
SELECT concat((SELECT md5(string_agg(concat_ws(' ', c.oid, c.xmin, c.relfilenode), ',' ORDER BY c.oid))
               FROM held JOIN pg_class c ON c.oid = held.oid),
              ' ', (SELECT concat_ws(' ', count(*), sum(e.xmin::text::bigint)) FROM pg_enum e),
              ' ', (SELECT md5(string_agg(concat_ws(' ', i.indexrelid, i.xmin, i.indisvalid, a.xmin), ','
                                          ORDER BY i.indexrelid, a.attnum))
                    FROM held JOIN pg_class c ON c.oid = held.oid AND (c.relreplident = 'f' OR c.relkind = 'p')
                    JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique
                    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey::int2[])))
"""
_SIZES = """
SELECT c.oid::bigint, c.reltuples::float8, c.relpages, c.relkind = 'p', has_table_privilege(c.oid, 'SELECT'),
       CASE WHEN c.relkind = 'p' THEN 0
            -- pg_relation_size() would wait for the session that has locked the table.
            WHEN EXISTS (SELECT FROM pg_locks l WHERE l.relation = c.oid AND l.mode = 'AccessExclusiveLock')
                THEN c.relpages
            ELSE pg_relation_size(c.oid) / current_setting('block_size')::int END
FROM pg_class c WHERE c.oid = ANY(%s::oid[])
"""


@dataclass(frozen=True, slots=True)
class TableSize:
    """``pages`` is the current count, 0 for an empty or a partitioned table; ``rows`` the planner's estimate for it.

    ``rows`` is None if the table was never analysed. ``has_ctid``: the role may select ``ctid``, which requires the
    privilege for the entire table.
    """

    pages: int
    rows: int | None
    has_ctid: bool = True


@dataclass(frozen=True, slots=True)
class ResolvedRelation:
    """A table at a Relation message.

    ``announced`` is the result of ``Catalog.describe``; ``current`` is the table in the catalogue when it is queried,
    with every live column and a fingerprint, possibly with another oid; None if it no longer exists.
    """

    announced: TableSchema
    current: TableSchema | None


@dataclass(slots=True)
class _Facts:
    """The catalogue's facts about one table."""

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

    @property
    def unsent(self) -> set[str]:
        """The names of columns that are not streamed: a Relation never has them, whenever it was sent."""
        return {name for name, column in self.columns.items() if not is_streamed(column, self.fingerprint)}


class Catalog:
    """Reads table descriptions over one connection, with a few queries for any number of tables. Thread-safe.

    ``publication`` names the publication whose column lists and row filters are part of the tables' fingerprints;
    ``sent`` is in its place what a plug-in without publications sends.
    """

    def __init__(self, connection: Connection, publication: str = "", sent: PublicationMark | None = None) -> None:
        self._connection = connection
        self._publication = "" if sent is not None else publication
        self._sent = sent
        self._lock = threading.Lock()
        self._shown_xid = 0
        self.types = TypeCatalog(connection)

    @property
    def is_lost(self) -> bool:
        """Whether its connection is closed or was lost."""
        return self._connection.closed

    def tables(self, includes: Callable[[TableId], bool]) -> list[TableSchema]:
        """Return every included table, partitioned tables and each of their partitions, ordered by name.

        Raises SourceError or TransientError.
        """
        with self._lock:
            facts = self._read(includes=includes)
            found = [_schema(oid, table) for oid, table in facts.items()]
        return sorted(found, key=lambda table: table.id)

    def describe(self, relation: Relation) -> TableSchema:
        """Return the table as the Relation announces it, completed from the current catalogue.

        A column that the catalogue no longer has is optional and has no default; a key column that the Relation does
        not have was added later and is left out, unless it is not streamed. The result has no fingerprint. Raises
        SourceError or TransientError.
        """
        with self._lock:
            _, known = self._find(relation, _LOGGED, with_marks=False)
            return self._completed(relation, known)

    def resolve_relation(self, relation: Relation, xid: int = 0) -> ResolvedRelation:
        """Return the table as announced, and as in the catalogue (also if unlogged); read in one snapshot.

        The snapshot shows what the transaction ``xid`` (32 bits, 0 for none) has altered, unless the server does not
        make its commit visible for seconds. Raises SourceError or TransientError.
        """
        if xid:
            self._await_shown(xid)
        with self._lock:
            oid, known = self._find(relation, "true", with_marks=True)
            return ResolvedRelation(self._completed(relation, known), None if known is None else _schema(oid, known))

    def current(self, name: TableId) -> TableSchema | None:
        """Return the table of that name, also an unlogged one; None if there is none. Raises as ``tables`` does."""
        with self._lock:
            facts = self._read("n.nspname = %s AND c.relname = %s", (name.schema, name.table))
            return next((_schema(oid, table) for oid, table in facts.items()), None)

    def fingerprints(self, oids: Iterable[int]) -> dict[int, Fingerprint]:
        """Return table oid → current fingerprint, with two queries; a table that no longer exists is left out.

        Fast enough to be called every few seconds to detect changes that were not followed by a change of a row. Raises
        SourceError or TransientError.
        """
        with self._lock, self._one_state("reading table metadata"):
            return self._fingerprints(oids)

    def marks_stamp(self, oids: Iterable[int]) -> str:
        """Return a text that is another one once ``fingerprints`` returns others for the same tables.

        For tables of which few are altered: what is returned need not be compared. Raises SourceError or
        TransientError.
        """
        with self._lock:
            return f"{marks_stamp(self._connection, oids, self._publication)} {self.types.money_scale}"

    def storage_stamp(self, oids: Iterable[int]) -> str:
        """Return a text that is another one once the tables' values may have changed without an event.

        That is after an ALTER that rewrites them or adds a column, an ATTACH or DETACH, a renamed label of an enum;
        also after some that change no value. And once rows may have had equal keys, under REPLICA IDENTITY FULL. One
        query of index lookups, for every round. Raises SourceError or TransientError.
        """
        with self._lock, translated("reading table metadata"):
            return str(one_row(self._connection, _STORAGE_STAMP, (sorted(set(oids)),))[0])

    def row_filter(self, table: TableSchema) -> str:
        """Return the condition of the publication's row filter, or empty. Raises SourceError or TransientError."""
        if not self._publication or self._connection.info.server_version < 150000:
            return ""
        with self._lock, translated("reading the publication's row filter"):
            row = self._connection.execute(_ROW_FILTER, (self._publication, table.oid)).fetchone()
        return str(row[0]) if row and row[0] else ""

    def names(self) -> list[TableId]:
        """Return every table that could be captured, ordered."""
        with self._lock, translated("listing tables"):
            rows = self._connection.execute(f"{_NAMES} AND {_LOGGED}").fetchall()
            return sorted(TableId(row[1], row[2]) for row in rows)

    def no_tables(self) -> dict[TableId, str]:
        """Return relations that cannot be captured: view, materialized view, foreign table, unlogged table."""
        with self._lock, translated("listing views, foreign and unlogged tables"):
            return {TableId(row[0], row[1]): row[2] for row in self._connection.execute(_NO_TABLES).fetchall()}

    def identity_indexes(self, tables: Sequence[TableSchema]) -> dict[TableId, str]:
        """Return the name of the replica identity index, for tables with USING INDEX."""
        with self._lock:
            facts = self._read("c.oid = ANY(%s::oid[])", ([table.oid for table in tables],))
        return {table.id: table.identity_index for table in facts.values() if table.identity_index}

    def sizes(self, tables: Iterable[TableSchema]) -> dict[TableId, TableSize]:
        """Return pages and estimated rows, for planning; a table that no longer exists is left out."""
        by_oid = {table.oid: table.id for table in tables}
        with self._lock, translated("reading the sizes of tables"):
            rows = self._connection.execute(_SIZES, (list(by_oid),)).fetchall()
        return {
            by_oid[oid]: TableSize(0 if is_root else pages, _rows(tuples, known_pages, is_root, pages), bool(has_ctid))
            for oid, tuples, known_pages, is_root, has_ctid, pages in rows
        }

    def key_bounds(self, table: TableSchema, column: str) -> KeyBounds | None:
        """Return the bounds of an integer column that is the first of an index, None for an empty table or if refused.

        Raises SourceError or TransientError.
        """
        with self._lock, translated("reading the bounds of a table's key"):
            return key_bounds(self._connection, table, column)

    def leaves(self, root: TableSchema, *, is_filtered: bool) -> tuple[Leaf, ...]:
        """Return the leaf partitions that may be read by their own names; none if the table is to be read by its own.

        ``is_filtered``: the publication has a row filter. Raises SourceError or TransientError.
        """
        with self._lock, translated("listing the partitions of a table"):
            return leaves(self._connection, root, is_filtered=is_filtered)

    def _await_shown(self, xid: int) -> None:
        """Wait until new snapshots show a committed transaction.

        A server sends a commit once it is on disk, and makes it visible afterwards: with a synchronous standby, when
        that has confirmed it. A catalogue that is behind a Relation message does not tell what was altered.
        """
        end = time.monotonic() + _SHOWN_SECONDS
        while xid != self._shown_xid:
            with self._lock:
                if not is_running(self._connection, xid):
                    self._shown_xid = xid
                    return
            if time.monotonic() > end:
                _log.warning(
                    "Transaction %d was received, and is not visible to other sessions after %g s. Check what delays "
                    "commits, for example a synchronous standby. Tables that it altered may be read again.",
                    *(xid, _SHOWN_SECONDS),
                )
                return
            time.sleep(_PAUSE_SECONDS)

    def _find(self, relation: Relation, condition: str, *, with_marks: bool) -> tuple[int, _Facts | None]:
        """Return the catalogue's facts about a relation, by oid, else by name."""
        facts = self._read(f"c.oid = %s AND {condition}", (relation.oid,), with_marks=with_marks)
        if not facts:
            # Dropped and possibly created again since: the table that has the name now is the best available
            # description.
            name = (relation.namespace, relation.name)
            facts = self._read(f"n.nspname = %s AND c.relname = %s AND {condition}", name, with_marks=with_marks)
        self.types.load(column.type_oid for column in relation.columns)
        return next(iter(facts.items()), (relation.oid, None))

    def _fingerprints(self, oids: Iterable[int]) -> dict[int, Fingerprint]:
        return fingerprints(
            self._connection, oids, self._publication, self._sent, money_scale=lambda: self.types.money_scale
        )

    @contextmanager
    def _one_state(self, doing: str) -> Iterator[None]:
        """Run all queries inside in one snapshot of the catalogue, with the server's errors translated."""
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
            fingerprinted = facts if with_marks else ()
            for oid, marks in self._fingerprints(fingerprinted).items():
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
            table, listed = facts[oid], tuple(columns or ())
            key = listed[:count]
            if is_primary:
                table.primary_key, table.is_key_deferrable = key, not is_immediate
            else:
                table.index_key = table.index_key or listed
                if is_immediate and not is_partial:
                    table.unique_key = table.unique_key or key
            if is_identity:
                table.identity_index, table.identity_index_key = name, key

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
        unsent = names | (known.unsent if known else set())
        primary_key = tuple(name for name in (known.primary_key if known else ()) if name in unsent)
        if relation.identity is ReplicaIdentity.DEFAULT and flagged and set(flagged) != names & set(primary_key):
            # Under DEFAULT the flagged columns are the primary key at the time when these rows were written.
            primary_key = flagged
        identity_key = flagged
        if known and relation.identity is known.identity is ReplicaIdentity.INDEX:
            of_index = tuple(name for name in known.columns if name in known.identity_index_key)
            identity_key = of_index if set(of_index) & names == set(flagged) and set(of_index) <= unsent else flagged
        unique_key = known.unique_key if known and set(known.unique_key) <= names else ()
        index_key = tuple(name for name in (known.index_key if known else ()) if name in names)
        return TableSchema(
            TableId(relation.namespace, relation.name),
            relation.oid,
            tuple(columns),
            primary_key,
            unique_key,
            relation.identity,
            identity_key,
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
        validated=_VALIDATED if version >= 180000 else "",
        generated="a.attgenerated <> ''" if version >= 120000 else "false",
        kind="a.attgenerated::text" if version >= 120000 else "''",
        # The array of one element as text, for every element type and delimiter.
        missing="a.atthasmissing, array_to_string(a.attmissingval, '')" if version >= 110000 else "false, NULL",
    )


def _rows(tuples: float, known_pages: int, is_partitioned: bool, pages: int) -> int | None:
    if is_partitioned:
        return round(tuples) if tuples > 0 else None
    return estimated_rows(tuples, known_pages, pages)
