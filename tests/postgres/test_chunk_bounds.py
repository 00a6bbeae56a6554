"""Bounds: up to which place of the WAL a later snapshot shows every commit."""

from __future__ import annotations

import pytest

from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.postgres.source import Source
from cdc_core.selection.options import SelectionOptions
from cdc_core.snapshot.incremental.bounds import floor_of, proven_floor, take_bound
from cdc_core.visibility import Visibility
from tests.support.postgres_options import options_for

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
        with Source(options_for(each_pg, database), SelectionOptions(), ()) as opened:
            newest.execute("begin")
            newest.execute("insert into t values (1)")
            assert not opened.await_older_transactions(seconds=0.3)
            newest.execute("commit")
            assert opened.await_older_transactions()
    finally:
        newest.close()
        each_pg.drop_database(database)
