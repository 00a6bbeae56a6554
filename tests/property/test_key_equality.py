"""Keys of every type against PostgreSQL's own ``=``: two different keys of the source are never one in the lake.

The reverse holds where the lake has a natural type. A type that is stored as text has a key per text: PostgreSQL sends
the old key with an update that replaces it by an equal one of another text (numeric range, citext), so such an update
moves the row.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.decode.copy_text import decode_copy
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

NUMBERS = ("0", "-0", "0.0", "1", "1.0", "1.00", "-1", "1.05", "0.1", "10", "1e3", "1e-18", "1e-19", "1e-30", "NaN")
WIDE = ("1e20", "1e37", "1e40", "123456789012345678901234567890.123456789012", "99999999999999999999.5")
FLOATS = ("0", "-0", "NaN", "infinity", "-infinity", "0.1", "0.1000000001", "1e-40", "1e30", "3", "3.0000002")
DAYS = ("infinity", "-infinity", "2000-01-01", "2000-01-02", "0044-03-15 BC", "0001-01-01", "9999-12-31", "10000-01-01")
MOMENTS = (
    *DAYS,
    "2000-01-01 12:00:00",
    "2000-01-01 12:00:00.000001",
    "1969-12-31 23:59:59.999999",
    "24000-01-01 01:00",
)
ZONED = (*MOMENTS, "2000-01-01 12:00:00+00", "2000-01-01 13:00:00+01", "2000-01-01 12:00:00+01")
TIMES = ("00:00:00", "24:00:00", "12:00:00.5", "12:00:00.500001", "23:59:60")
SPANS = ("1 mon", "30 days", "720:00:00", "29 days 24:00:00", "1 year", "12 mons", "-1 day", "0", "1 day -24:00:00")
TEXTS = ("", "a", "A", "a ", "a  ", " a", "é", "e\u0301", "ß", "ss", "NULL", "\\", "\t", "日本", "\U0001f600", "{1}")
ADDRESSES = ("10.0.0.1", "10.0.0.1/32", "10.0.0.1/24", "::1", "::1/128", "::ffff:10.0.0.1", "10.0.0.2")
NUMBER_LISTS = (
    *(
        "{1,2}",
        "[1:2]={1,2}",
        "[0:1]={1,2}",
        "[2:3]={1,2}",
        "[-1:0]={1,2}",
        "{{1,2}}",
        "{{1},{2}}",
        "[0:0][1:2]={{1,2}}",
    ),
    *(
        "[1:1][0:1]={{1,2}}",
        "{}",
        "{NULL}",
        "{1,NULL}",
        "{NULL,1}",
        "{1}",
        "[0:0]={1}",
        "[5:5]={NULL}",
        "{{{1}}}",
        "{{1}}",
    ),
)
TEXT_LISTS = (
    "{a}",
    "{A}",
    '{"a "}',
    "{NULL}",
    '{"NULL"}',
    "{}",
    '{""}',
    "{a,b}",
    '{"a,b"}',
    "[0:0]={a}",
    '[0:0]={"a,b"}',
)
JSON = ("1", "1.0", '"1"', "null", '{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":1.0}', "[1,2]", "[2,1]", "[]", "{}", "true")
KINDS = {
    "smallint": ("1", "-1", "0", "32767"),
    "bigint": ("1", "9223372036854775807", "0"),
    "oid": ("0", "4294967295"),
    "boolean": ("t", "f", "yes"),
    "numeric": (*NUMBERS, *WIDE),
    "numeric(12,2)": NUMBERS,
    "numeric(50,20)": NUMBERS,
    "float8": FLOATS,
    "float4": FLOATS,
    "money": ("1", "1.00", "-1.5", "0"),
    "date": DAYS,
    "timestamp": MOMENTS,
    "timestamptz": ZONED,
    "time": TIMES,
    "timetz": tuple(f"{t}{z}" for t in TIMES for z in ("+00", "+01", "-05:30")),
    "interval": SPANS,
    "text": TEXTS,
    "varchar(9)": TEXTS,
    "char(5)": TEXTS,
    "bpchar": TEXTS,
    "name": TEXTS,
    '"char"': ("", "a", "A", "\\200"),
    "bytea": ("", "\\x00", "\\x0000", "\\xff", "a", "\\x61"),
    "uuid": (
        "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
        "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12}",
    ),
    "bit(3)": ("000", "001", "111"),
    "varbit": ("", "0", "00", "1", "01"),
    "inet": ADDRESSES,
    "cidr": ("10.0.0.0/8", "10.0.0.0/16", "10.0.0.0"),
    "macaddr": ("08:00:2b:01:02:03", "08-00-2B-01-02-03", "08002b010204"),
    "macaddr8": ("08:00:2b:01:02:03:04:05", "08002b0102030405", "08:00:2b:01:02:03"),
    "jsonb": JSON,
    "mood": ("sad", "ok", "Sad"),
    "int[]": NUMBER_LISTS,
    "bigint[]": NUMBER_LISTS,
    "numeric[]": (*NUMBER_LISTS, "{1.0,2}", "[0:1]={1.0,2}", "{NaN}", "{1e40}"),
    "float8[]": (*NUMBER_LISTS, "{-0}", "{0}", "{NaN}", "[0:0]={-0}"),
    "text[]": TEXT_LISTS,
    "listed": NUMBER_LISTS,
    "date[]": (
        "{infinity}",
        "{-infinity}",
        "{2000-01-01}",
        "[0:0]={2000-01-01}",
        "{NULL}",
        "{}",
        "{2000-01-01,infinity}",
    ),
    "int4range": ("[1,3)", "[1,2]", "(0,3)", "empty", "[1,1)", "(,)", "[1,)"),
    "int4multirange": ("{}", "{[1,2]}", "{[1,2),[2,3)}"),
    "numrange": ("[1,2]", "[1.0,2.0]", "[1,2)", "empty", "(,)"),
    "tstzrange": ("[2000-01-01,infinity)", "[2000-01-01,)", "empty"),
    "pair": ("(1,a)", '(1,"a ")', "(,)", '(,"")', "(1,)"),
    "pg_lsn": ("0/1", "0/01", "1/0"),
    "tsvector": ("a b", "b a", "a:1"),
}
# Types without a natural one in the lake, of which PostgreSQL considers different texts equal.
BY_TEXT = {"interval", "bpchar", "jsonb", "numrange", "pair", "numeric", "numeric(50,20)", "numeric[]", "float8[]"}
ARRAYS = st.builds(
    lambda low, items: f"[{low}:{low + len(items) - 1}]={{{','.join(items)}}}" if items else "{}",
    st.integers(-2, 3),
    st.lists(st.sampled_from(["1", "2", "NULL"]), max_size=3),
)
MADE_UP = {
    "int[]": ARRAYS,
    "numeric": st.builds(lambda n, e: f"{n}e{e}", st.integers(-20, 20), st.integers(-25, 25)),
    "text": st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=3),
    "timestamp": st.one_of(st.datetimes().map(str), st.sampled_from(MOMENTS)),
    "float8": st.one_of(st.floats().map(repr), st.sampled_from(FLOATS)),
}
TYPES = """
create type mood as enum ('sad', 'ok', 'Sad'); create type pair as (a int, b text); create domain listed as int[];
"""


@pytest.fixture(scope="module")
def judge(debian15):
    """A function: a type and texts of its values → PostgreSQL's texts, the equal pairs, the lake's numbers."""
    database = debian15.database("equality")
    options = options_for(debian15, database)
    debian15.execute(database, TYPES)
    for number, kind in enumerate(KINDS):
        debian15.execute(database, f"create table k{number} (n int, v {kind})")
    connection = connect(options)
    connection.execute("set search_path = public")
    reader = ChunkConnection(options)
    tables = {t.id.table: t for t in Catalog(connection).tables(lambda name: name.schema == "public")}

    def judged(kind, texts):
        table = tables[f"k{list(KINDS).index(kind)}"]
        values = ", ".join(f"({n}, v{n}::{kind})" for n in range(len(texts)))
        given_ = ", ".join(f"%s::text::{kind} as v{n}" for n in range(len(texts)))
        connection.execute(f"truncate {table.id}")
        connection.execute(
            f"insert into {table.id} select each.* from (select {given_}) as s, lateral (values {values}) each(n, v)",
            texts,
        )
        equal = connection.execute(
            f"select a.n, b.n from {table.id} a join {table.id} b on a.v = b.v"  # the operator of the key's index
        ).fetchall()
        lines = reader.read(f"select n, v from {table.id} order by n").rows[0]
        raw = decode_copy(lines, ("n", "v"), str(table.id))
        rows = TypingPlan(TypeOptions(), SelectionOptions()).typer(table).reads(raw, 0, 0)
        made = pa.Table.from_batches([rows])
        _, codes = KeyIndex.of(KeyColumns.of(("v",), made.schema), made)
        return raw.text[1].to_pylist(), set(equal), codes

    yield judged
    reader.close()
    connection.close()
    debian15.drop_database(database)


@pytest.mark.parametrize("kind", KINDS)
def test_two_keys_of_the_source_are_two_in_the_lake(judge, kind):
    compared(judge, kind, KINDS[kind])


@settings(max_examples=25)
@given(st.data())
@pytest.mark.parametrize("kind", ["int[]", "numeric", "text", "timestamp", "float8"])
def test_made_up_keys_of_the_source_are_as_many_in_the_lake(judge, kind, data):
    compared(judge, kind, data.draw(st.lists(MADE_UP[kind], min_size=2, max_size=12)))


def compared(judge, kind, texts):
    printed, equal, codes = judge(kind, [*texts])
    for one, other in product(range(len(texts)), repeat=2):
        is_one_in_lake = bool(np.equal(codes[one], codes[other]))
        is_one_in_source = (one, other) in equal
        if is_one_in_lake:
            assert is_one_in_source, f"{printed[one]} and {printed[other]} became one key"
        elif is_one_in_source:
            assert kind in BY_TEXT and printed[one] != printed[other], (
                f"{printed[one]} = {printed[other]} became two keys"
            )
