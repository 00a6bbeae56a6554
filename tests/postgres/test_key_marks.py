"""The marks of keys on live servers: an index is the same one through whatever keeps rows apart all the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import Connection, connect
from cdc_core.schema.table import TableSchema
from cdc_core.schema.unseen import keeps_key
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

PRIMARY = "create table t (k varchar(5) primary key, v text)"
PLAIN = "create table t (k varchar(5) not null, v text); create unique index u on t (k)"
UNIQUE = "create table t (k varchar(5) not null unique, v text)"
DROPPED_AND_MADE = {
    PRIMARY: "alter table t drop constraint t_pkey; alter table t add primary key (k)",
    UNIQUE: "alter table t drop constraint t_k_key; alter table t add unique (k)",
    PLAIN: "drop index u; create unique index u on t (k)",
}


@pytest.fixture(scope="module")
def sessions(each_pg: Cluster) -> Iterator[tuple[Connection, Connection]]:
    name = each_pg.database("key_marks")
    with connect(options_for(each_pg, name)) as session, connect(options_for(each_pg, name)) as other:
        for one in (session, other):
            one.execute("set search_path = public")
        yield session, other
    each_pg.drop_database(name)


@pytest.fixture
def session(sessions: tuple[Connection, Connection]) -> Connection:
    sessions[0].execute("drop table if exists t, parted, part cascade")
    return sessions[0]


def run(session: Connection, text: str) -> None:
    for statement in text.split("; "):
        session.execute(statement.encode())


def described(session: Connection, name: str = "t") -> TableSchema:
    [found] = Catalog(session).tables(lambda table: table.table == name)
    return found


def is_kept(session: Connection, text: str, name: str = "t") -> bool:
    """Whether the catalogue proves that the key was there all the time, and so the fingerprint the same."""
    before = described(session, name)
    run(session, text)
    after = described(session, name)
    assert before.fingerprint is not None and after.fingerprint is not None
    kept = keeps_key(before, after.fingerprint)
    assert kept or not before.fingerprint.is_unaltered(after.fingerprint)
    return kept


@pytest.mark.parametrize("create", [PRIMARY, PLAIN, UNIQUE], ids=["primary key", "index", "constraint"])
def test_an_index_is_the_same_through_all_that_keeps_rows_apart(session: Connection, create: str) -> None:
    run(session, create)
    assert described(session).row_key == ("k",)
    ((index,),) = session.execute("select indexrelid::regclass::text from pg_index where indrelid = 't'::regclass")
    for text in (
        f"reindex index {index}",
        "reindex table t",
        f"cluster t using {index}",
        "vacuum full t",
        "truncate t",
        f"alter table t cluster on {index}; alter table t set without cluster",
        f"alter table t replica identity using index {index}",
        "alter table t replica identity full",
        "alter table t alter k type varchar(9)",
        "alter table t alter k type text",
        "alter table t rename k to k2; alter table t rename k2 to k",
        f"alter index {index} rename to other; alter index other rename to {index}",
        "create unique index more on t (k, v); drop index more",
        "create unique index more on t (k)",
        "drop index more",
    ):
        assert is_kept(session, text), text
    if create == PLAIN:
        assert is_kept(session, "alter table t add constraint t_k_key unique using index u")
        create = UNIQUE
    assert is_kept(session, "reindex table concurrently t")
    assert not is_kept(session, DROPPED_AND_MADE[create])


def test_an_index_that_the_catalogue_does_not_prove_to_be_the_same_is_another(session: Connection) -> None:
    run(session, PLAIN)
    assert not is_kept(session, "reindex index concurrently u")
    assert not is_kept(session, DROPPED_AND_MADE[PLAIN])
    assert not is_kept(session, "create unique index more on t (k); drop index u; alter index more rename to u")
    for how in ("on t (k) where v is null", "on t (lower(k))", "on t (v)"):
        run(session, "drop index u; create unique index u on t (k)")
        assert not is_kept(session, f"drop index u; create unique index u {how}"), how
    run(session, "drop index u; alter table t add unique (k)")
    assert not is_kept(session, "alter table t drop constraint t_k_key; alter table t add unique (k) deferrable")


def test_an_index_of_which_a_drop_was_given_up_half_way_is_another_once_it_is_valid_again(
    each_pg: Cluster, sessions: tuple[Connection, Connection], session: Connection
) -> None:
    run(session, PLAIN)
    before = described(session)
    other = sessions[1]
    other.execute("begin; lock table t in access share mode")
    session.execute("set statement_timeout = '300ms'")
    with suppress(psycopg.errors.QueryCanceled):
        session.execute("drop index concurrently u")
    session.execute("reset statement_timeout")
    other.execute("rollback")
    invalid = described(session)
    assert invalid.row_key == () and invalid.fingerprint is not None and not keeps_key(before, invalid.fingerprint)
    run(session, "reindex index u")
    after = described(session)
    assert after.row_key == ("k",) and before.fingerprint is not None and after.fingerprint is not None
    assert before.fingerprint == after.fingerprint, "by its oid it is the same"
    assert not keeps_key(before, after.fingerprint) and not before.fingerprint.is_unaltered(after.fingerprint)


def test_an_index_that_could_not_be_made_is_no_key_until_it_is_valid(session: Connection) -> None:
    run(session, "create table t (k varchar(5) not null, v text); insert into t values ('a'), ('a')")
    with pytest.raises(psycopg.errors.UniqueViolation):
        session.execute("create unique index concurrently u on t (k)")
    before = described(session)
    assert before.row_key == ()
    run(session, "truncate t; reindex index u")
    after = described(session)
    assert after.row_key == ("k",) and before.fingerprint is not None and after.fingerprint is not None
    assert after.fingerprint.kept_keys(before.fingerprint) == ()


def test_a_partitions_key_stays_when_it_is_attached_and_detached_and_the_roots_is_its_own(session: Connection) -> None:
    run(session, "create table parted (id int primary key) partition by range (id)")
    run(session, "create table part (id int primary key)")
    attach = "alter table parted attach partition part for values from (0) to (10)"
    assert is_kept(session, attach, "part")
    assert is_kept(session, "reindex table parted; truncate parted", "part")
    made_again = "alter table parted drop constraint parted_pkey; alter table parted add primary key (id)"
    for name in ("part", "parted"):
        assert not is_kept(session, made_again, name)
    assert is_kept(session, "alter table parted detach partition part", "parted")
    assert is_kept(session, attach, "part")
