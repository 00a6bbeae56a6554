"""Random transactions, large and small ones interleaved, read with protocol 1 and while in progress: equal."""

from __future__ import annotations

import contextlib
import random

import pytest

from cdc_core.postgres.options import InProgress
from tests.postgres.sessions_model import Reader, Session
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

_STEPS = 220
_SESSIONS = 3


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_read_while_in_progress_is_what_protocol_1_sends(each_pg: Cluster, seed: int) -> None:
    dice = random.Random(seed)
    database = each_pg.database("in_progress")
    tables = "; ".join(f"create table own_{n} (id serial primary key, v text)" for n in range(_SESSIONS))
    each_pg.execute(database, f"{tables}; create table shared (id serial primary key, v text, big text)")
    each_pg.execute(database, f"alter table own_0 replica identity full; create publication {database} for all tables")
    each_pg.execute(database, f"alter database {database} set logical_decoding_work_mem = '64kB'")
    if each_pg.flavour != "debian15" and seed == 2:
        each_pg.execute(database, f"alter database {database} set debug_logical_replication_streaming = 'immediate'")
    plain = options_for(each_pg, database)
    asked = options_for(each_pg, database, slot_name=f"{database}_in", streaming_transactions=InProgress.ON)
    with contextlib.ExitStack() as stack:
        stack.callback(each_pg.drop_database, database)
        one, other = Reader(plain), Reader(asked)
        stack.callback(one.close)
        stack.callback(other.close)
        origin = f"{database}_origin"
        each_pg.execute(database, "select pg_replication_origin_create(%s)", [origin])
        stack.callback(each_pg.drop_origin, origin)
        sessions = [
            Session(number, stack.enter_context(contextlib.closing(each_pg.connect(database))), dice)
            for number in range(_SESSIONS)
        ]
        sessions[0].connection.execute("select pg_replication_origin_session_setup(%s)", [origin])
        for _ in range(_STEPS):
            dice.choice(sessions).step()
            if dice.random() < 0.2:
                other.read(dice.choice([3, 50, 5000]))
            if dice.random() < 0.02:
                other.reconnect()
        for session in sessions:
            session.finish(dice.choice(["commit", "rollback"]))
        end = each_pg.execute(database, "select pg_switch_wal(); select pg_current_wal_lsn() - '0/0'")[0][0]
        for reader in (one, other):
            reader.read_to(int(end))
    assert other.blocks > 5
    assert one.blocks == 0
    assert len(one.found) > 100
    assert other.found == one.found
