"""Under which names the changes of partitioned tables and their partitions are sent.

A publication sends the changes of a partition either under its own name, or, with publish_via_partition_root, under the
name of its topmost published ancestor. A table is in the lake under the names that the stream uses: then a partitioned
table is a table and its partitions are not, or the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc_core.postgres.connection import Connection
from cdc_core.postgres.options import PostgresOptions, PublicationAutocreateMode
from cdc_core.postgres.replication import publication
from cdc_core.postgres.sqlstate import translated
from cdc_core.schema import PublicationMark, TableId, TableSchema

_VIA_ROOT = 130_000
_ANCESTORS = """
WITH RECURSIVE above(leaf, oid) AS (
    SELECT i.inhrelid, i.inhparent FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent AND p.relkind = 'p'
    WHERE i.inhrelid = ANY(%s::oid[])
    UNION
    SELECT a.leaf, i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid
)
SELECT leaf::bigint, array_agg(oid::bigint) FROM above GROUP BY leaf
"""

_SILENT = """
WITH RECURSIVE held(root, oid) AS (
    SELECT oid, oid FROM pg_class WHERE oid = ANY(%s::oid[])
    UNION ALL
    SELECT h.root, i.inhrelid FROM held h JOIN pg_inherits i ON i.inhparent = h.oid
)
SELECT n.nspname, c.relname, rn.nspname, r.relname, c.relkind = 'f'
FROM held h JOIN pg_class c ON c.oid = h.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class r ON r.oid = h.root JOIN pg_namespace rn ON rn.oid = r.relnamespace
WHERE c.relkind = 'f' OR c.relkind = 'r' AND c.relpersistence = 'u' ORDER BY 1, 2
"""

# A replica identity is not inherited: old rows have the columns of the partition's own.
_IDENTITIES = """
WITH RECURSIVE held(root, oid) AS (
    SELECT oid, oid FROM pg_class WHERE oid = ANY(%s::oid[])
    UNION ALL
    SELECT h.root, i.inhrelid FROM held h JOIN pg_inherits i ON i.inhparent = h.oid
)
SELECT h.root::bigint, n.nspname, c.relname, array_agg(a.attname::text)
FROM held h JOIN pg_class c ON c.oid = h.oid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index x ON x.indrelid = c.oid AND x.indimmediate
     AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident ELSE false END
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY((x.indkey::int2[])[0:x.indnkeyatts - 1])
WHERE c.relkind = 'r' GROUP BY 1, 2, 3 ORDER BY 2, 3
"""


@dataclass(frozen=True, slots=True)
class NamedTables:
    """``own``: the tables whose changes are sent under their own names, in the given order.

    ``unheard``: partitioned tables and partitions whose changes are sent only under names that are not captured.
    ``divided``: captured partitioned tables whose changes are sent under the names of these partitions.
    """

    own: list[TableSchema]
    unheard: tuple[TableId, ...]
    divided: Mapping[TableId, tuple[TableId, ...]] = field(default_factory=dict)


def named(connection: Connection, options: PostgresOptions, tables: Sequence[TableSchema]) -> NamedTables:
    """Divide captured tables by the names in the stream, as the publication is now or as it is about to be created.

    A table that is not published yet is expected under the name that the publication's settings give it. Raises
    SourceError or TransientError.
    """
    partitioned = {table.oid for table in tables if table.is_partitioned}
    info = publication.inspect(connection, options.publication_name)
    can = connection.info.server_version >= _VIA_ROOT and options.plugin_name.has_publication
    via_root = info.via_root and can if info.exists else options.publish_via_partition_root and can
    if not partitioned and not via_root:
        return NamedTables(list(tables), ())
    with translated("reading the ancestors of partitions"):
        rows = connection.execute(_ANCESTORS, ([table.oid for table in tables],)).fetchall()
    above = {leaf: frozenset(oids) for leaf, oids in rows}
    if not via_root:
        heard = frozenset().union(*above.values()) if above else frozenset()
        own = [table for table in tables if table.oid not in partitioned]
        roots = [table for table in tables if table.oid in partitioned]
        divided = {
            root.id: tuple(leaf.id for leaf in own if root.oid in above.get(leaf.oid, ()))
            for root in roots
            if root.oid in heard and root.oid not in above
        }
        return NamedTables(own, tuple(root.id for root in roots if root.oid not in heard), divided)
    captured = {table.oid for table in tables}
    mode = options.publication_autocreate_mode
    lists_all = info.all_tables or (not info.exists and mode is PublicationAutocreateMode.ALL_TABLES)
    is_followed = mode is PublicationAutocreateMode.FILTERED

    def entries(table: TableSchema) -> PublicationMark | None:
        marks = None if table.fingerprint is None else table.fingerprint.publication
        return marks if marks is not None and marks.entries and not is_followed else None

    sent = {table.oid for table in tables if entries(table) is not None}
    parents_of_sent = frozenset().union(*(above.get(oid, frozenset()) for oid in sent)) if sent else frozenset()

    def is_own(table: TableSchema) -> bool:
        ancestors, marks = above.get(table.oid, frozenset()), entries(table)
        if lists_all:
            return not ancestors
        if marks is not None:
            return marks.is_own
        return not ancestors & captured and table.oid not in parents_of_sent

    own = [table for table in tables if is_own(table)]
    names = {table.oid for table in own}
    unheard = [
        table.id
        for table in tables
        if table.oid not in names
        and not above.get(table.oid, frozenset()) & names
        and not any(table.oid in above.get(oid, frozenset()) for oid in names)
    ]
    return NamedTables(own, tuple(unheard))


def unheard_text(table: TableId) -> str:
    """Return one sentence about a table in ``unheard``."""
    return (
        f"{table} is not captured: the server sends its changes under the names of its partitions, or of the "
        "table of which it is a partition, and these names are not captured."
    )


DIVIDED_REMEDY = (
    "For one lake table of all rows set publish_via_partition_root for the publication (publish.via.partition.root="
    "true for one that is created at start), or leave the partitioned table out of the lists."
)


def divided_text(root: TableId, leaves: Sequence[TableId]) -> str:
    """Return one sentence about a table in ``divided``."""
    names = ", ".join(map(str, leaves[:5])) + (f" and {len(leaves) - 5} more" if len(leaves) > 5 else "")
    return f"{root} is partitioned and is captured as its partitions: {names}. There is no table of its own name."


def silent_partitions(connection: Connection, tables: Sequence[TableSchema]) -> list[str]:
    """Return one sentence about each partition of partitioned tables whose changes are not in the WAL.

    A read of the table shows its rows, and the stream never changes them. Raises SourceError or TransientError.
    """
    partitioned = [table.oid for table in tables if table.is_partitioned]
    if not partitioned:
        return []
    with translated("reading the kinds of partitions"):
        rows = connection.execute(_SILENT, (partitioned,)).fetchall()
    return [
        f"Partition {TableId(schema, name)} of {TableId(root_schema, root)} is "
        f"{'a foreign table' if is_foreign else 'UNLOGGED'}: the stream does not have its changes, and the lake has "
        "its rows as they were when the table was read."
        for schema, name, root_schema, root, is_foreign in rows
    ]


def unlike_partitions(connection: Connection, tables: Sequence[TableSchema]) -> dict[TableId, str]:
    """Return one sentence about each partition whose old rows lack columns by which the table's rows are identified.

    ``tables`` are those whose changes are sent under their own names. Partitions without a replica identity are left
    out, as PostgreSQL refuses their updates and deletes. Raises SourceError or TransientError.
    """
    roots = {table.oid: table for table in tables if table.fingerprint and table.fingerprint.is_partitioned}
    if not roots:
        return {}
    with translated("reading the replica identities of partitions"):
        rows = connection.execute(_IDENTITIES, (list(roots),)).fetchall()
    differences = {}
    for oid, schema, name, sent in rows:
        root = roots[oid]
        lacking = sorted(set(root.row_key or [column.name for column in root.columns]) - set(sent))
        if lacking:
            differences[TableId(schema, name)] = (
                f"Partition {TableId(schema, name)} has another replica identity than {root.id}: the server sends its "
                f"old rows without {', '.join(lacking)}, and its updates and deletes do not identify rows of {root.id}."
            )
    return differences
