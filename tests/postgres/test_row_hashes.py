"""The hashes of rows that the server computes are those of the lake's values, for every type and size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cdc_core.lake.compare.row_hash import RowHash, parsed
from cdc_core.lake.compare.rows import Compared
from cdc_core.lake.compare.source_side import typed
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect, connection_string
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.rows.copy_out import copy_chunks, own_rows_sql
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

PLAN = TypingPlan(TypeOptions(), SelectionOptions())
TEXTS = [
    "",
    *("é" * size for size in (1, 2, 5, 6, 119, 120, 121)),
    *(size * "x" for size in (1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 23, 24, 25, 239, 240, 241, 5000)),
]
# Values of each type; those after the None are not in the lake's type, or beyond what has a hash there.
VALUES: dict[str, list[str | None]] = {
    "bool": ["t", "f"],
    "int2": ["0", "1", "-1", "32767", "-32768"],
    "int4": ["0", "1", "-1", "2147483647", "-2147483648"],
    "int8": ["0", "1", "-1", "4294967296", "4294967297", "-4294967296", "9223372036854775807", "-9223372036854775808"],
    "float4": ["0", "-0", "1", "1.1", "NaN", "Infinity", "-Infinity", "1e-45"],
    "float8": ["0", "-0", "1", "1.1", "NaN", "Infinity", "-Infinity", "5e-324", "1e308"],
    "numeric(12,2)": ["0", "0.01", "-0.01", "1", "1.5", "9999999999.99", "-9999999999.99", None, "NaN"],
    "numeric(38,6)": ["0", "0.000001", "-12345678901234567890123456789012.123456"],
    "numeric(5,0)": ["0", "99999", "-99999"],
    "date": ["1970-01-01", "2000-01-01", "0001-01-01", "9999-12-31", "1969-12-31", None, "infinity", "-infinity"],
    "timestamp": [
        *("1970-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:00:00.000001", "2242-01-01 00:00:00"),
        *("2024-02-29 12:00:00.000002", "1700-01-01 00:00:00.5", None, "2300-01-01 00:00:00", "infinity"),
    ],
    "timestamptz": [
        "1970-01-01 00:00:00+00",
        "2024-02-29 12:00:00.000001+02",
        None,
        "-infinity",
        "1600-01-01 00:00:00+00",
    ],
    "text": TEXTS,
    "varchar": TEXTS,
    "varchar(20) collate alike": ["Ä", "ä"],
    "char(5)": ["", "a", "abcde"],
    "name": ["", "some_name"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": ['{"a":  1}', "null", '{"a": "' + "x" * 300 + '"}'],
    "jsonb": ['{"a": 1}', "null", '{"a": "' + "x" * 300 + '"}'],
    "bytea": ["", "\\x00", "\\xff00ff", "\\x" + "ab" * 240, "\\x" + "ab" * 241],
    "inet": ["10.0.0.1", "10.0.0.0/8", "::1"],
    "cidr": ["10.0.0.0/8"],
    "macaddr": ["08:00:2b:01:02:03"],
    "mood": ["sad", "very happy"],
    "short": ["one", "two"],
}


def read(options: PostgresOptions, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of a table's rows by the server, and from the values in the lake."""
    with connect(options) as connection:
        table = Catalog(connection).current(TableId("public", name))
    assert table is not None
    typer = PLAN.typer(table)
    compared = Compared.of(typer.read_schema, typer.read_schema, table.row_key)
    hashing = RowHash.of(typer, compared)
    assert hashing is not None
    target, select = connection_string(options), own_rows_sql(table, typer.read_columns)
    ordered = f"{select} ORDER BY id"
    server = parsed(b"".join(copy_chunks(target, None, hashing.select(ordered))))
    lines = b"".join(copy_chunks(target, None, ordered))
    some = b"".join(copy_chunks(target, None, hashing.select_rows(select, ["id"], np.sort(server[::2]))))
    assert len(some.splitlines()) == len(server[::2])
    return server, hashing.digests(compared.conformed(typed(typer, lines, 1, 1)))


def test_a_value_has_the_same_hash_on_both_sides_and_no_other_has_it(each_pg: Cluster) -> None:
    database = each_pg.database("hashes")
    types = "create type mood as enum ('sad', 'very happy'); create domain short as text check (length(value) < 9)"
    each_pg.execute(database, types)
    # Some builds have no ICU; with it the collation takes both letters for one.
    has_icu = each_pg.execute(database, "select count(*) > 0 from pg_collation where collname = 'und-x-icu'")[0][0]
    provider = "provider = icu, deterministic = false, locale = 'und-u-ks-level2'" if has_icu else "locale = 'C'"
    each_pg.execute(database, f"create collation alike ({provider})")
    for number, (kind, values) in enumerate(VALUES.items()):
        name, plain = f"t{number}", kind.split(" ")[0]
        each_pg.execute(database, f"create table {name} (id int primary key, v {kind}, w {kind})")
        hashed = values[: values.index(None)] if None in values else values
        rows = [(None, None), *((value, None) for value in hashed), *((None, value) for value in hashed)]
        rows += [*pairwise(hashed), *((value, value) for value in hashed)]
        count = len(rows)
        rows += [(value, None) for value in values[len(hashed) + 1 :]]
        each_pg.execute(
            database,
            f"insert into {name} select number, a::{plain}, b::{plain} "
            "from unnest(%s::text[], %s::text[]) with ordinality as of(a, b, number)",
            [[a for a, _ in rows], [b for _, b in rows]],
        )
        server, lake = read(options_for(each_pg, database), name)
        assert (server[:count] == lake[:count]).all(), kind
        assert not np.isin(server[count:], lake).any(), kind
        assert not np.isin(lake[count:], server).any(), kind
        assert len(set(server.tolist())) == len(server), kind
    each_pg.drop_database(database)


def test_many_columns_in_many_rows(each_pg: Cluster) -> None:
    database = each_pg.database("hashes")
    each_pg.execute(
        database,
        "create table t (id bigint primary key, a int, b varchar(90), c numeric(12, 2), d float8, e timestamptz); "
        "insert into t select g * 1000003::bigint, g % 7, repeat('x', g % 90), g / 100.0, g / 7.0, "
        "'2024-01-01Z'::timestamptz + g * interval '1.000001 s' from generate_series(1, 40000) g; "
        "update t set a = null where id % 11 = 0; create table none (id int primary key)",
    )
    server, lake = read(options_for(each_pg, database), "t")
    assert len(server) == len(set(server.tolist())) == 40_000
    assert (server == lake).all()
    server, lake = read(options_for(each_pg, database), "none")
    assert len(server) == len(lake) == 0
    each_pg.drop_database(database)
