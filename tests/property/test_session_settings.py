"""A value is what the server holds, never what a session shows: every type under settings by chance, from everywhere.

Environment, role, database, role in database and (from 17 on) a login event trigger each set what texts, rows and
statements depend on. Snapshot and stream then read what they read without any of it, which is what a plain session
says. ``WAL2LAKE_SEED`` repeats a run.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cdc_core.decode.copy_text import decode_copy
from cdc_core.decode.pgoutput import RelationRun, StreamState, decode_rows, sort_segment
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.errors import SourceError
from cdc_core.option import Secret
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect, connection_string
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import publication, slot
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.postgres.rows.copy_out import SnapshotHolder, copy_chunks, select_sql
from cdc_core.schema.table import TableId, TableSchema
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for
from tests.support.waits import wait_until
from tests.unit.types.source_table import SourceTable

pytestmark = pytest.mark.postgres

SEED = sampling.seed(4808)
DRAWS = 4
EVERY_TYPE, NAMES, HIDDEN = TableId("public", "every_type"), TableId("public", "names"), TableId("public", "hidden")
TABLES = (EVERY_TYPE, NAMES, HIDDEN)
LOGIN_TRIGGERS = 170_000

SETTINGS = {
    "datestyle": ("German", "'SQL, DMY'", "'SQL, MDY'", "'Postgres, DMY'", "'ISO, YMD'"),
    "intervalstyle": ("iso_8601", "sql_standard", "postgres_verbose"),
    "timezone": ("'Asia/Tokyo'", "'America/St_Johns'", "'<XX>-3'"),
    "extra_float_digits": ("-15", "-5", "0"),
    "bytea_output": ("escape",),
    "xmloption": ("document",),
    "xmlbinary": ("hex",),
    "array_nulls": ("off",),
    "quote_all_identifiers": ("on",),
    "row_security": ("on",),
    "client_encoding": ("LATIN1", "SQL_ASCII"),
    "standard_conforming_strings": ("off",),
    "search_path": (
        "decoys, pg_catalog, public",
        "nowhere",
        "public, decoys, pg_catalog",
        "decoys, public, pg_catalog",
    ),
    "lc_monetary": ("'C'",),  # other locales: the tests of money
    "lc_numeric": ("'C'",),
    "default_transaction_isolation": ("serializable", "'read uncommitted'"),
    "default_transaction_read_only": ("on",),
    "default_transaction_deferrable": ("on",),
    "lock_timeout": ("1",),
    "statement_timeout": ("'9s'",),
    "idle_in_transaction_session_timeout": ("'9s'",),
}
ENVIRONMENT = {
    "PGDATESTYLE": ("German", "SQL, DMY", "Postgres, MDY"),
    "PGTZ": ("Asia/Kathmandu", "America/Caracas"),
    "PGCLIENTENCODING": ("LATIN1",),
    "PGOPTIONS": (
        "-c row_security=on -c extra_float_digits=0",
        "-c bytea_output=escape -c search_path=decoys,pg_catalog,public -c intervalstyle=iso_8601",
    ),
    "PGGEQO": ("off",),
    "PGHOSTADDR": ("192.0.2.1",),
    "PGHOST": ("192.0.2.1",),
    "PGPORT": ("1",),
    "PGDATABASE": ("nowhere",),
    "PGUSER": ("nobody",),
    "PGTARGETSESSIONATTRS": ("standby",),
    "PGLOADBALANCEHOSTS": ("random",),
    "PGSSLMODE": ("require",),
    "PGSSLNEGOTIATION": ("direct",),
    "PGSSLCERTMODE": ("require",),
    "PGSSLROOTCERT": ("system", "/nowhere"),
    "PGSSLCERT": ("/nowhere",),
    "PGSSLKEY": ("/nowhere",),
    "PGCONNECT_TIMEOUT": ("1",),
    "PGAPPNAME": ("another",),
}

# Relations, functions and operators that a search_path may put before the catalogue's.
SCHEMA = """
create schema decoys;
create view decoys.pg_class as select 1 as x;
create view decoys.pg_attribute as select 1 as x;
create view decoys.pg_type as select 1 as x;
create view decoys.pg_settings as select 'wal_sender_timeout'::text as name, '1'::text as setting;
create view decoys.pg_publication as select 1 as x;
create view decoys.pg_replication_slots as select 1 as x;
create function decoys.set_config(text, text, boolean) returns text language sql as $$ select 'a decoy' $$;
create function decoys.current_setting(text, boolean) returns text language sql as $$ select 'a decoy' $$;
create function decoys.pg_backend_pid() returns int language sql as $$ select 1 $$;
create table public.names (id int primary key, c regclass, t regtype, p regproc, n regnamespace, r regrole);
create table public.hidden (id int primary key, v text);
alter table public.hidden enable row level security;
create policy few on public.hidden using (id <= 5);
"""
LOGIN = """
begin read write;
create function public.at_login() returns event_trigger language plpgsql as $$ begin {} end $$;
create event trigger at_login on login execute function public.at_login();
alter event trigger at_login enable always;
commit;
"""


@dataclass(frozen=True)
class Server:
    """A database with the tables. ``options`` is a role without privileges beyond reading and replication."""

    cluster: Cluster
    options: PostgresOptions
    source: SourceTable
    rows: int

    @property
    def database(self) -> str:
        """Its name."""
        return self.options.database_dbname

    def reset(self) -> None:
        """Let nobody set anything."""
        self.cluster.execute("postgres", f'alter database "{self.database}" reset all')
        self.cluster.execute("postgres", f"alter role {self.options.database_user} reset all")
        self.cluster.execute(
            "postgres", f'alter role {self.options.database_user} in database "{self.database}" reset all'
        )
        if self.has_login_triggers:
            self.cluster.execute(
                self.database,
                "begin read write; drop event trigger if exists at_login; drop function if exists public.at_login();"
                "commit",
            )

    @property
    def has_login_triggers(self) -> bool:
        """Whether a login event trigger is possible."""
        version = self.cluster.execute("postgres", "select current_setting('server_version_num')::int")
        return bool(version[0][0] >= LOGIN_TRIGGERS)


@pytest.fixture(scope="module")
def server(each_pg: Cluster) -> Iterator[Server]:
    database = each_pg.database("settings")
    role = f"reader_{database}"
    source = SourceTable.make(each_pg, database)
    each_pg.execute("postgres", f'alter database "{database}" reset all')
    each_pg.execute(database, SCHEMA)
    each_pg.execute(
        database,
        f"create role {role} login replication password 'pw'; grant select on all tables in schema public to {role}",
    )
    options = replace(options_for(each_pg, database), database_user=role, database_password=Secret("pw"))
    administrator = options_for(each_pg, database)
    with connect(administrator) as connection, connect(administrator, replication=True) as replication:
        publication.ensure(connection, administrator, list(TABLES), ())
        slot.create(replication, options.slot_name)
    rows = source.draw(30, SEED)
    source.insert(rows, 0)
    each_pg.execute(
        database,
        "insert into public.names values (1, 'public.names', 'public.names', 'lower(text)'::regprocedure, 'public',"
        f" '{role}'), (2, 'pg_catalog.pg_class', 'int[]', 'decoys.set_config', 'pg_catalog', 'postgres');"
        "insert into public.hidden select g, 'v' from generate_series(1, 20) g",
    )
    try:
        yield Server(each_pg, options, source, len(rows))
    finally:
        each_pg.drop_database(database)


def by_id(rows: RawColumns) -> dict[str, list[str | None]]:
    """The texts of each column, in the order of the ids."""
    order = pc.sort_indices(pc.cast(rows.text[rows.names.index("id")], pa.int64()))
    return {name: text.take(order).to_pylist() for name, text in zip(rows.names, rows.text, strict=True)}


def copied(options: PostgresOptions) -> dict[TableId, dict[str, list[str | None]]]:
    """What a snapshot reads of the tables that no policy cuts."""
    tables = {}
    with SnapshotHolder(connect(options)) as holder:
        found = Catalog(holder.connection).tables(lambda name: name in (EVERY_TYPE, NAMES))
        assert len(found) == 2
        for table in found:
            names = tuple(column.name for column in table.columns)
            data = b"".join(copy_chunks(connection_string(options), holder.name, select_sql(table.id, names)))
            tables[table.id] = by_id(decode_copy(data, names, str(table.id)))
    return tables


def streamed(server: Server) -> dict[TableId, dict[str, list[str | None]]]:
    """What the slot sends of them; it stays where it is."""
    tables: dict[TableId, TableSchema] = {}
    with connect(server.options) as connection:
        for table in Catalog(connection).tables(lambda name: name in TABLES):
            tables[table.id] = table
    state, runs = StreamState(), list[RelationRun]()
    with ReplicationStream(server.options) as stream:

        def has_all() -> bool:
            segment = stream.read(10**6, 1 << 28, 0.2)
            if segment:
                lookup = lambda relation, xid: tables[TableId(relation.namespace, relation.name)]  # noqa: E731
                runs.extend(sort_segment(segment, state, lookup).runs)
            return sum(run.raw.num_rows for run in runs) >= server.rows + 22

        wait_until(has_all, 30, "the stream's rows")
    found: dict[TableId, dict[str, list[str | None]]] = {}
    for name in TABLES:
        mine = [run for run in runs if run.relation.name == name.table]
        raw = pa.Table.from_batches([run.raw for run in mine]).combine_chunks().to_batches()[0]
        found[name] = by_id(decode_rows(raw, mine[0].relation).new)
    return found


def said_by_a_plain_session(server: Server) -> dict[str, list[str | None]]:
    """The texts of every type, by no code of ours."""
    names = ("id", "marker", *(server.source.column(name) for name in server.source.cases))
    with server.source.plain() as connection, connection.cursor() as cursor:
        cursor.execute("set extra_float_digits = 3")
        with cursor.copy(f"copy public.every_type ({', '.join(names)}) to stdout") as copy:
            return by_id(decode_copy(b"".join(copy), names, "every_type"))


def set_by_chance(server: Server, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Each place sets half of what it can, to any value."""
    chance = random.Random(SEED + number)

    def some() -> dict[str, str]:
        return {name: chance.choice(values) for name, values in SETTINGS.items() if chance.random() < 0.5}

    role, database = server.options.database_user, server.database
    statements = [f"alter role {role} set {name} = {value}" for name, value in some().items()]
    statements += [f'alter database "{database}" set {name} = {value}' for name, value in some().items()]
    statements += [f'alter role {role} in database "{database}" set {name} = {value}' for name, value in some().items()]
    for statement in statements:
        server.cluster.execute("postgres", statement)
    if server.has_login_triggers:
        body = " ".join(
            f"perform pg_catalog.set_config('{name}', {value if value[0] == chr(39) else repr(value)}, false);"
            for name, value in some().items()
        )
        server.cluster.execute(database, LOGIN.format(body))
    environment = {name: chance.choice(values) for name, values in ENVIRONMENT.items() if chance.random() < 0.5}
    for name in ENVIRONMENT:
        if name in environment:
            monkeypatch.setenv(name, environment[name])
        else:
            monkeypatch.delenv(name, raising=False)
    print(statements, environment)


def test_snapshot_and_stream_read_the_same_under_any_settings(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"WAL2LAKE_SEED={SEED}")
    server.reset()
    expected, stream = copied(server.options), streamed(server)
    plain = said_by_a_plain_session(server)
    assert expected[EVERY_TYPE] == plain
    assert expected == {name: stream[name] for name in expected}
    assert stream[HIDDEN]["id"] == [str(number) for number in range(1, 21)]
    for number in range(DRAWS):
        with monkeypatch.context() as environment:
            set_by_chance(server, environment, number)
            try:
                assert copied(server.options) == expected, f"draw {number}"
                assert streamed(server) == stream, f"draw {number}"
                reader = ChunkConnection(server.options)
                with pytest.raises(SourceError, match="Row-level security would hide rows"):
                    reader.read("SELECT id FROM public.hidden")
            finally:
                with environment.context() as none:
                    for name in ENVIRONMENT:
                        none.delenv(name, raising=False)
                    server.reset()
