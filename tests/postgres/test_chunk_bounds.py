"""Bounds: up to which place of the WAL a later snapshot shows every commit."""

from __future__ import annotations

import pytest

from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.postgres.source import Source
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.tables import TableSelection
from cdc_core.snapshot.incremental.bounds import floor_of, proven_floor, take_bound
from cdc_core.visibility import Visibility
from tests.support.postgres_options import options_for
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres

OPEN = "select backend_xid::text::bigint from pg_stat_activity where backend_xid is not null"


def test_a_bound_is_passed_once_every_transaction_of_its_time_has_ended(each_pg) -> None:
    pg = each_pg
    database = pg.database("bounds")
    pg.execute(database, "create table t (id int)")
    options: PostgresOptions = options_for(pg, database)
    connection = ChunkConnection(options)
    older = pg.connect(database)
    try:
        older.execute("begin")
        older.execute("insert into t values (1)")
        end, before = connection.bound()
        (xid,) = pg.execute(database, OPEN)[0]
        assert xid % 2**32 < before, "the id of a transaction that is open lies before"
        bound = take_bound(connection)
        seen = connection.read().visible
        # No later transaction has ended, so that the snapshot's xmax alone does not tell of the open one.
        assert not Visibility.parse(seen).shows_all_before(before) and floor_of(seen, (bound,)) == 0
        older.execute("commit")
        seen = connection.read().visible
        assert Visibility.parse(seen).shows_all_before(before) and end <= floor_of(seen, (bound,)) == bound[0]
        later = take_bound(connection)
        assert bound[0] <= proven_floor(connection, (bound, later)) == later[0]
    finally:
        older.close()
        connection.close()
        pg.drop_database(database)


def test_an_open_transaction_that_is_the_newest_is_waited_for(each_pg) -> None:
    database = each_pg.database("outlive")
    each_pg.execute(database, "create table t (id int)")
    newest = each_pg.connect(database)
    try:
        with Source(options_for(each_pg, database), TableSelection(SelectionOptions())) as opened:
            newest.execute("begin")
            newest.execute("insert into t values (1)")
            assert not opened.await_older_transactions(seconds=0.3)
            newest.execute("commit")
            assert opened.await_older_transactions()
    finally:
        newest.close()
        each_pg.drop_database(database)


def test_a_query_of_wide_rows_is_read_in_parts_that_are_bounded(each_pg) -> None:
    database = each_pg.database("wide")
    each_pg.execute(database, "create table t (id int primary key, v text)")
    each_pg.execute(database, "insert into t select g, repeat('x', 1000000) from generate_series(1, 30) g")
    connection = ChunkConnection(options_for(each_pg, database))
    rows, after = list[bytes](), 0
    while True:
        select = f"select id, v from t where id > {after} order by id limit 1000"
        found = connection.read(select, most_bytes=10_000_000)
        rows += (mine := found.rows[0].splitlines())
        if not found.is_cut:
            break
        assert 10 <= len(mine) < 20 and found.rows[0].endswith(b"\n")
        after = int(mine[-1].split(b"\t")[0])
    assert [int(row.split(b"\t")[0]) for row in rows] == list(range(1, 31)) and {len(row) for row in rows} <= {
        1000002,
        1000003,
    }
    assert not connection.read("select 1", most_bytes=10).is_cut
    connection.close()
    each_pg.drop_database(database)


def test_the_end_of_the_wal_is_reached_while_a_table_is_locked_and_nothing_is_committed(each_pg) -> None:
    database = each_pg.database("unflushed")
    each_pg.execute(database, "create table t (id int)")
    connection = ChunkConnection(options_for(each_pg, database))
    holder = each_pg.connect(database)
    try:
        holder.execute("begin")
        holder.execute("lock table t in access exclusive mode")
        # The record of the lock is the newest, and no commit follows that would write it to disk. (The server does so
        # at times for reasons of its own, so that waiting for the flush alone would tell nothing.)
        before = connection.next_transaction()
        end = connection.wal_end()
        assert connection.next_transaction() == before + 1, "a transaction of its own is committed"
        reached = "select pg_current_wal_flush_lsn() >= %s::pg_lsn"
        wait_until(lambda: each_pg.execute(database, reached, [str(end)])[0][0], 20, "the flush of the WAL")
        connection.wal_end()
        assert connection.next_transaction() == before + 1, "none where all of it is on disk"
    finally:
        holder.close()
        connection.close()
        each_pg.drop_database(database)
