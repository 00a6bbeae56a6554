"""The fingerprints of any number of tables (``cdc_core.schema.fingerprint``), with two queries for all versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from cdc_core.postgres.connection import Connection
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.schema import (
    MONEY,
    ColumnMark,
    Fingerprint,
    KeyMark,
    PublicationEntry,
    PublicationMark,
    StorageMark,
    TypeMark,
)

_MONEY_ARRAY = 791

# relfilenode is read as a column, because pg_relation_filenode() ignores the query's snapshot. A partition that was
# created as one has rows in pg_attribute as old as its row type; ATTACH and DETACH rewrite each of them, as does ALTER
# COLUMN TYPE of the first column since 15.20 (the partition then counts as attached with rows). The query follows a
# table's ancestors for its publication, and its leaves for its heaps. pg_relation_size() waits for a session that
# alters or truncates the leaf, and all other tables would wait with it: a locked leaf counts as not empty.
_MARKS = """
WITH RECURSIVE wanted AS MATERIALIZED (
    SELECT c.* FROM pg_class c WHERE c.oid = ANY(%(oids)s::oid[])
), pub AS (
    SELECT p.*, p.xmin FROM pg_publication p WHERE p.pubname = %(publication)s
), held(root, oid, path) AS (
    SELECT oid, oid, '' FROM wanted WHERE relkind = 'p'
    UNION ALL
    SELECT h.root, i.inhrelid, h.path || i.xmin::text || ' '
    FROM held h JOIN pg_inherits i ON i.inhparent = h.oid
), above(leaf, oid, namespace, path) AS (
    SELECT oid, oid, relnamespace, '' FROM wanted
    UNION ALL
    SELECT a.leaf, i.inhparent, p.relnamespace, a.path || i.xmin::text || ' '
    FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid JOIN pg_class p ON p.oid = i.inhparent AND p.relkind = 'p'
), columns AS (
    SELECT a.attrelid, json_agg(json_build_array(a.attnum, a.xmin::text, coalesce(d.oid, 0)::bigint, {missing},
                                                  {kind})
                                ORDER BY a.attnum) AS marks
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = ANY(%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped GROUP BY a.attrelid
), locked AS MATERIALIZED (
    SELECT l.relation FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
    WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock'
), leaves AS (
    SELECT h.root, json_agg(json_build_array(c.oid::bigint, c.relfilenode::bigint, c.reltoastrelid::bigint,
            c.relpersistence = 'u',
            EXISTS (SELECT FROM pg_type t JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
                    WHERE t.oid = c.reltype AND a.xmin = t.xmin AND a.cmin = t.cmin),
            CASE WHEN c.oid IN (SELECT relation FROM locked) THEN false
                 ELSE coalesce(pg_relation_size(c.oid), 0) = 0 END, h.path) ORDER BY c.oid) AS marks
    FROM held h JOIN pg_class c ON c.oid = h.oid AND c.relkind <> 'p' GROUP BY h.root
), listed AS (
    SELECT a.leaf, json_agg(json_build_array('t', r.oid::bigint, a.path, {columns}, {filter}) ORDER BY r.oid) AS marks
    FROM above a JOIN pg_publication_rel r ON r.prrelid = a.oid JOIN pub ON pub.oid = r.prpubid GROUP BY a.leaf
), by_schema AS (
    {by_schema}
), keys AS (
    SELECT i.indrelid, json_agg(json_build_array(
            i.indexrelid::bigint, coalesce(k.oid, 0)::bigint, key.columns, x.relfilenode::bigint,
            i.xmin::text, concat(CASE WHEN i.indisclustered THEN 'c' END, CASE WHEN i.indisreplident THEN 'i' END,
                                 CASE WHEN i.indisprimary THEN 'p' END, CASE WHEN i.indcheckxmin THEN 'x' END)
        ) ORDER BY i.indexrelid) AS marks
    FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
    CROSS JOIN LATERAL (SELECT CASE WHEN i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate
                                    THEN (i.indkey::int2[])[0:{key_columns} - 1] ELSE ARRAY[]::int2[] END) key(columns)
    LEFT JOIN pg_constraint k ON k.conrelid = i.indrelid AND k.conindid = i.indexrelid AND k.contype IN ('p', 'u')
    WHERE i.indrelid = ANY(%(oids)s::oid[]) AND i.indisunique AND i.indisvalid GROUP BY i.indrelid
), comments AS (
    SELECT d.objoid, string_agg(d.objsubid || ':' || d.xmin::text, ' ' ORDER BY d.objsubid) AS marks
    FROM pg_description d WHERE d.classoid = 'pg_class'::regclass AND d.objoid = ANY(%(oids)s::oid[]) GROUP BY d.objoid
)
SELECT c.oid::bigint, n.nspname, c.relname, c.relnatts::int, c.relreplident::text, c.relkind = 'p', columns.marks,
       CASE WHEN c.relkind = 'p' THEN leaves.marks
            ELSE json_build_array(json_build_array(c.oid::bigint, c.relfilenode::bigint, c.reltoastrelid::bigint,
                                                   c.relpersistence = 'u', true, false)) END,
       keys.marks, coalesce(comments.marks, ''), pub.oid::bigint, pub.puballtables, pub.xmin::text,
       concat(CASE WHEN pub.pubinsert THEN 'c' END, CASE WHEN pub.pubupdate THEN 'u' END,
              CASE WHEN pub.pubdelete THEN 'd' END, CASE WHEN {truncates} THEN 't' END),
       {via_root}, {generated}, c.relkind = 'p', c.relispartition, listed.marks, by_schema.marks,
       control.system_identifier::text, {horizon},
       coalesce(row_type.xmin::text, ''), c.relowner::bigint
FROM wanted c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_type row_type ON row_type.oid = c.reltype
CROSS JOIN pg_control_system() control
LEFT JOIN columns ON columns.attrelid = c.oid LEFT JOIN leaves ON leaves.root = c.oid
LEFT JOIN pub ON true LEFT JOIN listed ON listed.leaf = c.oid LEFT JOIN by_schema ON by_schema.leaf = c.oid
LEFT JOIN keys ON keys.indrelid = c.oid LEFT JOIN comments ON comments.objoid = c.oid
"""
_BY_SCHEMA = """
    SELECT a.leaf, json_agg(json_build_array('s', s.oid::bigint, a.path, NULL, false) ORDER BY s.oid) AS marks
    FROM above a JOIN pg_publication_namespace s ON s.pnnspid = a.namespace JOIN pub ON pub.oid = s.pnpubid
    GROUP BY a.leaf
"""
_NO_SCHEMAS = "SELECT NULL::oid AS leaf, NULL::json AS marks WHERE false"

# Enums, composites and money used by the columns, also in arrays, domains, ranges and composites' attributes. Other
# types created by initdb cannot be altered. A row's transaction id has 32 bits, and the last 2^31 are distinct: the
# current epoch extends it to 64.
_TYPES = """
WITH RECURSIVE used(relation, oid) AS (
    SELECT DISTINCT a.attrelid, a.atttypid FROM pg_attribute a
    WHERE a.attrelid = ANY(%(oids)s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
      AND (a.atttypid >= 16384 OR a.atttypid IN ({money}))
    UNION
    SELECT u.relation, inner_type.oid
    FROM used u JOIN pg_type t ON t.oid = u.oid
    JOIN LATERAL (
        SELECT t.typelem UNION ALL SELECT t.typbasetype
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN ({ranges})
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped
    ) AS inner_type(oid) ON inner_type.oid >= 16384 OR inner_type.oid IN ({money})
)
SELECT u.relation::bigint, t.oid::bigint, t.typtype::text, part.marks, coalesce(part.changed, 0)
FROM used u JOIN pg_type t ON t.oid = u.oid AND (t.typtype IN ('e', 'c') OR t.oid = {money_oid})
CROSS JOIN (SELECT txid_snapshot_xmax(txid_current_snapshot())) AS now(xid)
JOIN LATERAL (
    SELECT json_agg(json_build_array(number, label, xid::text) ORDER BY place) FILTER (WHERE is_live),
           max(now.xid - ((now.xid - xid::text::bigint) & 4294967295)) FILTER (WHERE xid <> t.xmin)
    FROM (SELECT e.oid::bigint, e.enumlabel, e.enumsortorder, true, e.xmin FROM pg_enum e WHERE e.enumtypid = t.oid
          UNION ALL
          SELECT a.attnum, '', a.attnum, NOT a.attisdropped, a.xmin FROM pg_attribute a
          WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0
    ) AS rows(number, label, place, is_live, xid)
) AS part(marks, changed) ON true
ORDER BY u.relation, t.oid
"""

# What both queries return but the horizon, which follows the server's transactions.
_MARKS_STAMP = """
SELECT concat((SELECT md5(string_agg(md5(m::text), '' ORDER BY md5(m::text))) FROM ({marks}) AS m), ' ',
              (SELECT md5(string_agg(md5(t::text), '' ORDER BY md5(t::text))) FROM ({types}) AS t))
"""

_STAMP = """
WITH p AS (SELECT oid, xmin FROM pg_publication WHERE pubname = %(publication)s)
SELECT md5(string_agg(concat_ws(' ', kind, oid, xid), ',' ORDER BY kind, oid, xid::text)) FROM (
    SELECT 'p' AS kind, oid, xmin AS xid FROM p
    UNION ALL SELECT 't', r.oid, r.xmin FROM pg_publication_rel r JOIN p ON r.prpubid = p.oid {schemas}
    UNION ALL SELECT 'e', oid, xmin FROM pg_enum
    UNION ALL SELECT 'c', a.attrelid, a.xmin FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
              WHERE c.relkind = 'c' AND c.oid >= 16384
) AS parts
"""


def fingerprints(
    connection: Connection,
    oids: Iterable[int],
    publication: str = "",
    sent: PublicationMark | None = None,
    money_scale: Callable[[], int] = lambda: 0,
) -> dict[int, Fingerprint]:
    """Return table oid → fingerprint; a table that no longer exists is left out.

    ``publication`` is the publication's name; if empty, the fingerprints do not include publications, but ``sent``
    where it is given: then partitions are sent by their own names. ``money_scale`` returns the decimals of money. The
    two queries use the same snapshot only inside of a REPEATABLE READ transaction. Raises SourceError or
    TransientError.
    """
    arguments = {"oids": sorted(set(oids)), "publication": publication}
    if not arguments["oids"]:
        return {}
    version = connection.info.server_version
    with translated("reading table metadata"):
        rows = connection.execute(_marks_query(version), arguments).fetchall()
        types = connection.execute(_types_query(version), arguments).fetchall()
    by_table: dict[int, list[TypeMark]] = {}
    for relation, oid, kind, parts, changed in types:
        pairs = ((money_scale(), ""),) if oid == MONEY else tuple((part[0], part[1]) for part in parts or ())
        written = tuple(part[2] for part in parts or ()) if kind == "e" else ()
        by_table.setdefault(relation, []).append(TypeMark(oid, kind, pairs, changed, written))
    by_oid = {row[0]: _fingerprint(row, tuple(by_table.get(row[0], ())), bool(publication)) for row in rows}
    if sent is None:
        return by_oid
    return {
        oid: dataclasses.replace(marks, publication=dataclasses.replace(sent, is_own=not marks.is_partitioned))
        for oid, marks in by_oid.items()
    }


def catalogue_stamp(connection: Connection, publication: str) -> str:
    """Return a text that differs after the publication, its contents, an enum or a composite type was altered.

    Raises SourceError or TransientError.
    """
    schemas = "UNION ALL SELECT 's', n.oid, n.xmin FROM pg_publication_namespace n JOIN p ON n.pnpubid = p.oid"
    has_schemas = connection.info.server_version >= 150000
    query = _STAMP.format(schemas=schemas if has_schemas else "")
    with translated("reading the publication and types"):
        return str(one_row(connection, query.encode(), {"publication": publication})[0])


def marks_stamp(connection: Connection, oids: Iterable[int], publication: str = "") -> str:
    """Return a text that differs once ``fingerprints`` of the same tables would; the server computes it.

    The decimals of money are not in it. One query; it costs the server as much as ``fingerprints``, and the client
    nothing. Raises SourceError or TransientError.
    """
    version = connection.info.server_version
    marks, types = _marks_query(version, horizon="0"), _types_query(version)
    arguments = {"oids": sorted(set(oids)), "publication": publication}
    with translated("reading table metadata"):
        return str(one_row(connection, _MARKS_STAMP.format(marks=marks, types=types).encode(), arguments)[0])


def _marks_query(version: int, horizon: str = "txid_snapshot_xmin(txid_current_snapshot())") -> str:
    return _MARKS.format(
        horizon=horizon,
        missing="a.atthasmissing" if version >= 110000 else "false",
        kind="a.attgenerated::text" if version >= 120000 else "''",
        columns="r.prattrs::int2[]" if version >= 150000 else "NULL::int2[]",
        filter="r.prqual IS NOT NULL" if version >= 150000 else "false",
        by_schema=_BY_SCHEMA if version >= 150000 else _NO_SCHEMAS,
        truncates="pub.pubtruncate" if version >= 110000 else "false",
        via_root="pub.pubviaroot" if version >= 130000 else "false",
        generated="pub.pubgencols::text" if version >= 180000 else "''",
        key_columns="i.indnkeyatts" if version >= 110000 else "i.indnatts",
    )


def _types_query(version: int) -> str:
    ranges = "r.rngtypid, r.rngmultitypid" if version >= 140000 else "r.rngtypid"
    return _TYPES.format(ranges=ranges, money=f"{MONEY}, {_MONEY_ARRAY}", money_oid=MONEY)


def _fingerprint(row: tuple[Any, ...], types: tuple[TypeMark, ...], with_publication: bool) -> Fingerprint:
    oid, namespace, name, attributes, identity, is_partitioned, columns, storage, keys, comments = row[:10]
    *publication, server, horizon, naming, owner = row[10:]
    return Fingerprint(
        server,
        oid,
        namespace,
        name,
        attributes,
        identity,
        is_partitioned,
        tuple(ColumnMark(*mark) for mark in columns or ()),
        tuple(StorageMark(*mark) for mark in storage or ()),
        tuple(KeyMark(index, constraint, tuple(key), *facts) for index, constraint, key, *facts in keys or ()),
        comments,
        types,
        _publication(*publication) if with_publication else None,
        horizon=horizon,
        naming=naming,
        owner=owner,
    )


def _publication(
    oid: int | None,
    all_tables: bool,
    row: str,
    operations: str,
    via_root: bool,
    generated: str,
    is_partitioned: bool,
    is_partition: bool,
    listed: Any,
    by_schema: Any,
) -> PublicationMark:
    if oid is None:
        return PublicationMark(0, "", "", False, "", ())
    entries = [PublicationEntry("a", oid)] if all_tables else []
    for kind, entry, path, columns, is_filtered in [*(listed or ()), *(by_schema or ())]:
        numbers = None if columns is None else tuple(sorted(columns))
        entries.append(PublicationEntry(kind, entry, path, numbers, is_filtered))
    is_below = any(entry.path for entry in entries) or (all_tables and is_partition)
    is_own = not is_below if via_root else not is_partitioned
    return PublicationMark(oid, row, operations, via_root, generated, tuple(entries), is_own)
