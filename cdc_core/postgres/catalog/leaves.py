"""The leaf partitions of a partitioned table that may be read by their own names, instead of the root's."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.postgres.connection import Connection
from cdc_core.schema import TableId, TableSchema

# pg_partition_tree() would lock every partition, and wait for a session that alters one; pg_inherits does neither, on
# all versions. A query of the root checks neither the privileges nor the row-level security of its partitions, a query
# of a partition checks both; ctid needs the privilege for the entire table. A partition that DETACH CONCURRENTLY is
# detaching is visible as a partition to some queries only. Functions return NULL for a table that was just dropped.
_LEAVES = """
WITH RECURSIVE held(oid, pending) AS (
    SELECT c.oid, row_security_active(c.oid) FROM pg_class c WHERE c.oid = %(root)s AND c.relkind = 'p'
    UNION ALL
    SELECT i.inhrelid, h.pending OR {pending} FROM held h JOIN pg_inherits i ON i.inhparent = h.oid
)
SELECT c.oid::bigint, n.nspname, c.relname, c.xmin::text, has_table_privilege(c.oid, 'SELECT'),
       c.relkind = 'r' AND NOT h.pending AND NOT row_security_active(c.oid) AND has_schema_privilege(n.oid, 'USAGE')
       AND (has_table_privilege(c.oid, 'SELECT')
            OR (SELECT bool_and(has_column_privilege(c.oid, a.attnum, 'SELECT')) FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                  AND (%(columns)s::text[] IS NULL OR a.attname = ANY(%(columns)s::text[])))),
       c.reltuples::float8, c.relpages,
       CASE WHEN c.relkind <> 'r' THEN 0
            -- pg_relation_size() would wait for the session that has locked the leaf.
            WHEN EXISTS (SELECT FROM pg_locks l WHERE l.relation = c.oid AND l.mode = 'AccessExclusiveLock')
                THEN c.relpages
            ELSE pg_relation_size(c.oid) / current_setting('block_size')::int END
FROM held h JOIN pg_class c ON c.oid = h.oid AND c.relkind <> 'p' JOIN pg_namespace n ON n.oid = c.relnamespace
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf partition. ``pages`` is the current count; ``rows`` the planner's estimate, None if never analysed.

    ``row`` is the xmin of its pg_class row: it differs after renaming, even to the original name. ``has_ctid``: the
    role may select ``ctid``, so that it can be read by ranges of pages.
    """

    id: TableId
    oid: int
    row: str
    has_ctid: bool
    pages: int
    rows: int | None

    @property
    def identity(self) -> tuple[TableId, int, str]:
        """Equal as long as statements with the leaf's name read the same table."""
        return (self.id, self.oid, self.row)


def leaves(connection: Connection, root: TableSchema, *, is_filtered: bool) -> tuple[Leaf, ...]:
    """Return the leaves of a partitioned table, ordered by name; empty if it must be read by its own name.

    That is the case if it has none; if its leaves differ from those of its fingerprint; if one is a foreign table, or
    is being detached; if the role may not read a leaf's columns (all of them with ``is_filtered``, because the
    publication's row filter may contain any); if row-level security applies to the root or a leaf. Raises
    psycopg.Error.
    """
    marks = root.fingerprint
    if marks is None or not marks.is_partitioned:
        return ()
    pending = "i.inhdetachpending" if connection.info.server_version >= 140000 else "false"
    columns = None if is_filtered else [column.name for column in root.columns]
    rows = connection.execute(_LEAVES.format(pending=pending), {"root": root.oid, "columns": columns}).fetchall()
    if {row[0] for row in rows} != {mark.oid for mark in marks.storage} or not all(row[5] for row in rows):
        return ()
    return tuple(
        Leaf(
            TableId(namespace, name),
            oid,
            xmin,
            bool(whole),
            pages or 0,
            estimated_rows(tuples, known_pages, pages or 0),
        )
        for oid, namespace, name, xmin, whole, _, tuples, known_pages, pages in rows
    )


def estimated_rows(tuples: float, known_pages: int, pages: int) -> int | None:
    """Return the planner's estimate of a table's rows, from pg_class and its current pages; None if never analysed."""
    if tuples < 0 or known_pages <= 0:
        return 0 if pages == 0 else None
    return round(tuples / known_pages * pages)
