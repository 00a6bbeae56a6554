"""What a connection says about its server, and that a second connection must say the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_core.errors import SourceError, TransientError
from cdc_core.postgres.connection import Connection, connect
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.replication.stream_identity import server_mark, stream_facts
from cdc_core.postgres.source import Source
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.tables import TableSelection
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres


@pytest.fixture
def options(each_pg: Cluster) -> Iterator[PostgresOptions]:
    database = each_pg.database("identity")
    each_pg.execute(database, f'create publication "{database}" for all tables')
    each_pg.execute(database, "select pg_create_logical_replication_slot(%s, 'pgoutput')", [database])
    yield options_for(each_pg, database)
    each_pg.drop_database(database)


def test_both_kinds_of_connection_name_the_same_server(each_pg: Cluster, options: PostgresOptions) -> None:
    with connect(options, replication=True) as replication, connect(options) as ordinary:
        facts = stream_facts(replication, options.slot_name)
        assert server_mark(ordinary) == (facts.system_id, facts.timeline)
    assert (facts.timeline, facts.history, facts.is_standby) == (1, (), False)
    assert facts.database == options.database_dbname
    assert facts.slot.exists
    assert facts.slot.confirmed_lsn is not None
    assert facts.flushed >= facts.slot.confirmed_lsn
    (row,) = each_pg.execute(facts.database, "select oid from pg_database where datname = current_database()")
    assert facts.database_oid == row[0]


def test_a_second_connection_that_reaches_another_server(options: PostgresOptions) -> None:
    with Source(options, TableSelection(SelectionOptions())) as source:
        with connect(options) as ordinary:
            system_id, timeline = server_mark(ordinary)
        source.expect(system_id, timeline)
        source.open_concurrent_snapshot().close()
        for other in (("1", timeline), (system_id, timeline + 1)):
            with pytest.raises(TransientError, match="reached two servers"):
                source.expect(*other)
            with pytest.raises(TransientError, match="reached two servers"):
                source.open_concurrent_snapshot()


def test_the_streaming_connection_is_compared_before_it_streams(options: PostgresOptions) -> None:
    seen: list[Connection] = []

    def refuse(connection: Connection) -> None:
        seen.append(connection)
        assert stream_facts(connection, options.slot_name).slot.exists
        raise SourceError("another server")

    with pytest.raises(SourceError, match="another server"):
        ReplicationStream(options, check=refuse)
    assert seen[0].closed
    ReplicationStream(options).close()
