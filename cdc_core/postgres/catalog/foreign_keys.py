"""The foreign keys of a database, with one query for all server versions."""

from __future__ import annotations

from cdc_core.postgres.connect import Connection
from cdc_core.schema.foreign_key import ForeignKey
from cdc_core.schema.table import TableId

# A foreign key to a partitioned table has additional entries of the same table, one for each partition of the parent.
_FOREIGN_KEYS = """
SELECT k.conname, n.nspname, c.relname, own.names, pn.nspname, p.relname, other.names, {exact}
FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY key.place) AS names, array_agg(a.attcollation) AS collations
    FROM unnest(k.conkey) WITH ORDINALITY AS key(attnum, place)
    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = key.attnum
) AS own
CROSS JOIN LATERAL (
    SELECT array_agg(a.attname::text ORDER BY key.place) AS names, array_agg(a.attcollation) AS collations
    FROM unnest(k.confkey) WITH ORDINALITY AS key(attnum, place)
    JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = key.attnum
) AS other
WHERE k.contype = 'f' AND {of_its_own}
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C", k.conname COLLATE "C"
"""
_OF_ITS_OWN = "NOT EXISTS (SELECT FROM pg_constraint r WHERE r.oid = k.conparentid AND r.conrelid = k.conrelid)"
_EXACT = """NOT EXISTS (SELECT FROM pg_collation o
                        WHERE o.oid = ANY (own.collations || other.collations) AND NOT o.collisdeterministic)"""


def foreign_keys(connection: Connection) -> list[ForeignKey]:
    """Return every foreign key, ordered by table and name; also those of partitions. Raises psycopg.Error."""
    version = connection.info.server_version
    query = _FOREIGN_KEYS.format(
        of_its_own=_OF_ITS_OWN if version >= 110000 else "true", exact=_EXACT if version >= 120000 else "true"
    )
    return [
        ForeignKey(name, TableId(schema, table), tuple(own), TableId(parent_schema, parent), tuple(other), is_exact)
        for name, schema, table, own, parent_schema, parent, other, is_exact in connection.execute(query).fetchall()
    ]
