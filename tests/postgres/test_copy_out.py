"""Reading tables: one snapshot for many connections, COPY in chunks of whole lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from cdc_core.engine.status import source_rows
from cdc_core.errors import SourceError, TransientError
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect, connection_string
from cdc_core.postgres.options import PostgresOptions, SslMode
from cdc_core.postgres.replication import slot
from cdc_core.postgres.rows.copy_out import SnapshotHolder, copy_chunks, copy_sql, own_rows_sql, select_sql
from cdc_core.postgres.server import wal_end
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.proxy import Proxy
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@pytest.fixture
def options(each_pg: Cluster) -> Iterator[PostgresOptions]:
    database = each_pg.database("copy")
    each_pg.execute(
        database,
        "create table t (id int primary key, v text); insert into t select g, 'v' || g from generate_series(1, 5000) g",
    )
    yield options_for(each_pg, database)
    each_pg.drop_database(database)


def read(options: PostgresOptions, name: str | None, select: str, size: int = 1 << 20) -> bytes:
    return b"".join(copy_chunks(connection_string(options), name, select, size))


def test_many_readers_of_one_snapshot_see_the_same_rows_while_the_table_changes(
    each_pg: Cluster, options: PostgresOptions
) -> None:
    with SnapshotHolder(connect(options)) as holder:
        each_pg.execute(options.database_dbname, "delete from t where id > 10; insert into t values (-1, 'late')")
        halves = [select_sql(T, ["id"], "id <= 2500"), select_sql(T, ["id"], "id > 2500")]
        with ThreadPoolExecutor(2) as pool:
            parts = list(pool.map(lambda sql: read(options, holder.name, sql), halves))
        assert sorted(map(int, b"".join(parts).split())) == list(range(1, 5001))
        holder.check()
    assert len(read(options, None, select_sql(T, ["id"])).split()) == 11


def test_the_snapshot_of_a_new_slot_lives_on_in_the_holder(each_pg: Cluster, options: PostgresOptions) -> None:
    with connect(options, replication=True) as replication:
        created = slot.create(replication, options.slot_name)
        holder = SnapshotHolder(connect(options), created.snapshot_name)
    each_pg.execute(options.database_dbname, "delete from t")
    with holder:
        assert holder.name != created.snapshot_name
        assert holder.facts.lsn >= created.consistent_point
        assert read(options, holder.name, "select count(*) from public.t") == b"5000\n"


def test_a_snapshot_reports_its_position_and_blocks_no_other_slot(each_pg: Cluster, options: PostgresOptions) -> None:
    with connect(options) as observer:
        before = wal_end(observer)
        with SnapshotHolder(connect(options)) as holder:
            facts = holder.facts
            assert before <= facts.lsn <= wal_end(observer)
            assert facts.txid is not None and facts.txid > 0
            assert facts.visible.count(":") == 2
            assert observer.execute(
                "select pg_visible_in_snapshot(%s::text::xid8, %s::pg_snapshot)", (str(facts.txid), facts.visible)
            ).fetchone() == (True,)
            row = observer.execute("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").fetchone()
            assert row is not None and 0 <= row[0] - facts.timestamp_us < 60_000_000
            with connect(options, replication=True) as replication:
                slot.create(replication, options.slot_name, seconds=10)


def test_a_locked_table_is_not_truncated_under_its_readers_and_the_wait_for_a_lock_is_bounded(
    each_pg: Cluster, options: PostgresOptions
) -> None:
    database = options.database_dbname
    with SnapshotHolder(connect(options)) as holder:
        holder.lock([T], 1000)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            each_pg.execute(database, "set lock_timeout = 200; truncate t")
        each_pg.execute(database, "delete from t where id = 1")
        assert read(options, holder.name, "select count(*) from public.t") == b"5000\n"
    with each_pg.connect(database) as other, SnapshotHolder(connect(options)) as holder:
        other.execute("begin")
        other.execute("lock table t in access exclusive mode")
        with pytest.raises(TransientError, match="locking the tables"):
            holder.lock([T], 200)
        other.execute("rollback")


def test_ranges_of_pages_together_are_the_table(options: PostgresOptions) -> None:
    with SnapshotHolder(connect(options)) as holder:
        whole = read(options, holder.name, select_sql(T, ["id", "v"]))
        parts = [
            read(options, holder.name, select_sql(T, ["id", "v"], condition))
            for condition in ("ctid < '(9,0)'::tid", "ctid >= '(9,0)'::tid")
        ]
    assert b"".join(parts) == whole
    assert all(parts)


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
def test_chunks_are_of_whole_lines_and_about_the_size_asked_for(options: PostgresOptions, size: int) -> None:
    chunks = list(copy_chunks(connection_string(options), None, select_sql(T, ["id", "v"]), size))
    assert all(chunk.endswith(b"\n") and len(chunk) < size + 20 for chunk in chunks)
    assert b"".join(chunks).count(b"\n") == 5000
    assert len(chunks) == 5000 if size == 1 else len(chunks) >= 1


def test_an_empty_table_gives_no_chunk_and_odd_names_are_quoted(each_pg: Cluster, options: PostgresOptions) -> None:
    each_pg.execute(options.database_dbname, 'create schema "S x"; create table "S x"."T""q" ("Cöl %s" int, b text)')
    odd = TableId("S x", 'T"q')
    select = select_sql(odd, ["Cöl %s", "b"])
    assert select == 'SELECT "Cöl %s", "b" FROM "S x"."T""q"'
    assert list(copy_chunks(connection_string(options), None, select)) == []
    each_pg.execute(options.database_dbname, 'insert into "S x"."T""q" values (1, null), (2, E\'a\\tb\\n\')')
    assert read(options, None, select) == b"1\t\\N\n2\ta\\tb\\n\n"


def test_only_leaves_out_the_children_of_an_inherited_table(each_pg: Cluster, options: PostgresOptions) -> None:
    each_pg.execute(options.database_dbname, "create table child () inherits (t); insert into child values (-5, 'c')")
    assert b"-5" in read(options, None, select_sql(T, ["id"]))
    assert b"-5" not in read(options, None, select_sql(T, ["id"], only=True))


def test_a_table_is_counted_and_read_without_the_rows_of_tables_that_inherit_from_it(
    each_pg: Cluster, options: PostgresOptions
) -> None:
    each_pg.execute(
        options.database_dbname,
        "create table child () inherits (t); insert into child values (-5, 'c');"
        "create table parted (id int) partition by range (id);"
        "create table part partition of parted for values from (0) to (10); insert into parted values (7), (8)",
    )
    with connect(options) as session:
        tables = {table.id.table: table for table in Catalog(session).tables(lambda name: True)}
    found = source_rows(options, list(tables.values()))
    assert {name: found[table.id] for name, table in tables.items()} == {"t": 5000, "child": 1, "parted": 2, "part": 2}
    assert b"-5" not in read(options, None, own_rows_sql(tables["t"], ["id"]))
    assert read(options, None, own_rows_sql(tables["parted"], ["id"], "id > 7")) == b"8\n"


def test_an_override_may_end_with_a_semicolon(options: PostgresOptions) -> None:
    assert copy_sql(" SELECT 1;; -- one\n") == "COPY (SELECT 1\n) TO STDOUT"
    # It is the user's SQL: a name without a schema is the role's.
    chunks = copy_chunks(connection_string(options), None, "SELECT id FROM t WHERE id = 3;", is_users=True)
    assert b"".join(chunks) == b"3\n"


def test_an_expired_snapshot_and_a_dropped_table_are_reported(options: PostgresOptions) -> None:
    holder = SnapshotHolder(connect(options))
    holder.close()
    with pytest.raises(SourceError, match="importing the snapshot"):
        read(options, holder.name, select_sql(T, ["id"]))
    with pytest.raises(SourceError, match=r'relation "public\.missing" does not exist'):
        read(options, None, select_sql(TableId("public", "missing"), ["id"]))


def test_a_value_in_a_failed_statement_is_not_quoted(options: PostgresOptions) -> None:
    with pytest.raises(SourceError) as caught:
        read(options, None, "SELECT v::int FROM public.t")
    assert "v1" not in str(caught.value)
    assert "22P02" in caught.value.message


def test_a_holder_notices_that_its_connection_was_removed(each_pg: Cluster, options: PostgresOptions) -> None:
    holder = SnapshotHolder(connect(options))
    each_pg.execute("postgres", "select pg_terminate_backend(%s)", [holder.connection.info.backend_pid])
    with pytest.raises(TransientError):
        wait_until(holder.check)
    holder.close()


def test_a_line_cut_in_the_middle_of_a_table_is_a_fault_that_may_pass(pg: Cluster) -> None:
    database = pg.database("cut")
    pg.execute(database, "create table t as select g as id, repeat('x', 1000) as v from generate_series(1, 50000) g")
    with Proxy(pg.host, pg.port) as proxy:
        options = replace(options_for(pg, database), database_port=proxy.port, database_sslmode=SslMode.DISABLE)
        chunks = copy_chunks(connection_string(options), None, select_sql(T, ["id", "v"]), 100_000)
        assert next(chunks).endswith(b"\n")
        threading.Timer(0.05, proxy.cut).start()
        with pytest.raises(TransientError, match="connection to the server was lost"):
            for _ in chunks:
                threading.Event().wait(0.01)
    pg.drop_database(database)
