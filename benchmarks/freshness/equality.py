"""Whether lake tables hold exactly their source's rows: a row count and a checksum that no order changes.

Both sides make one integer a row of the same canonical text (MD5, 60 bits of it) and add them up: PostgreSQL in SQL,
the lake read by delta-rs and summed by DuckDB. Nothing of wal2lake's is in between.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.freshness.product import MeasureError, Site

# The same text in both dialects; amounts in cents and times in microseconds, which both print as integers.
_TEXT = "concat_ws('|', id, name, {cents}, {microseconds}, active::int, attributes, quantity, coalesce(note, '<null>'))"
_SOURCE = _TEXT.format(
    cents="(amount * 100)::bigint", microseconds="(extract(epoch from changed_at) * 1000000)::bigint"
)
_LAKE = _TEXT.format(cents="(amount * 100)::bigint", microseconds="epoch_us(changed_at)")
_LIVE = {"__deleted": 'not coalesce("__deleted", false)', "__valid_to_lsn": '"__valid_to_lsn" is null'}
_COLUMNS = "id, name, amount, changed_at, active, attributes, quantity, note"


def source_sum(site: Site, table: str) -> tuple[int, int]:
    """Rows and checksum of a source table."""
    sql = f"select count(*), coalesce(sum(('x' || left(md5({_SOURCE}), 15))::bit(60)::bigint), 0)::text from {table}"
    ((rows, checksum),) = site.cluster.execute(site.database, sql)
    return int(rows), int(checksum)


def lake_sum(folder: Path | str, storage: dict[str, str] | None = None) -> tuple[int, int]:
    """Rows and checksum of a lake table, in a folder or in a store (delta-rs' options)."""
    import duckdb
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(folder), storage_options=storage)
    names = {field.name for field in table.schema().fields}
    # Rows that the source does not have (any more) are kept in the delete modes soft and history.
    ended = " and ".join(text for name, text in _LIVE.items() if name in names)
    lake = QueryBuilder().register("lake", table)
    query = f"select {_COLUMNS} from lake" + (f" where {ended}" if ended else "")
    batches = pa.RecordBatchReader.from_stream(lake.execute(query))
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("rows", batches)
        sql = f"select count(*), coalesce(sum(('0x' || left(md5({_LAKE}), 15))::bigint), 0)::varchar from rows"
        ((rows, checksum),) = connection.execute(sql).fetchall()
    return int(rows), int(checksum)


def require_equal(site: Site) -> int:
    """Compare every table; the rows of all. Raises MeasureError naming the tables that differ."""
    total, wrong = 0, []
    for table, folder in zip(site.tables, site.table_folders(), strict=True):
        source, lake = source_sum(site, table), lake_sum(folder, site.storage)
        total += source[0]
        if source != lake:
            wrong.append(f"{table} ({source[0]:,} rows in the source, {lake[0]:,} in the lake)")
    if wrong:
        raise MeasureError(f"the lake differs from its source in {', '.join(wrong)}")
    return total
