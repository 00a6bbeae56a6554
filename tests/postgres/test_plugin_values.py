"""Special values of every type through each output plug-in: what differs from pgoutput is in the table of faults.

Compared is PostgreSQL's text, before any type of ours; of floating point and money, which decoderbufs sends as numbers,
the number that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from cdc_core.decode.pgoutput import StreamState, decode_rows, sort_segment
from cdc_core.decode.plugins import translator
from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.known_faults import concerned_tables
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.replication.seen_relations import SeenRelations
from cdc_core.postgres.replication.stream import ReplicationStream
from cdc_core.postgres.server import wal_end
from cdc_core.schema.table import TableSchema
from cdc_core.types.registry import RULES, rule_for
from tests.support.cluster import Cluster
from tests.support.plugin_streams import PLUGINS, PluginStream, streams
from tests.support.waits import wait_until

pytestmark = pytest.mark.postgres

SETUP = """
create extension hstore; create extension ltree; create extension citext; create extension postgis;
create type mood as enum ('so so', 'fine');
create domain a_numeric numeric; create domain a_float float8; create domain a_zoned timetz;
create domain another_zoned a_zoned; create domain a_date date; create domain a_bytea bytea; create domain a_bool bool;
create domain a_money money; create domain a_timestamp timestamp; create domain a_point point; create domain a_big int8;
create domain numerics numeric[];
create type parts as (n numeric, z timetz, d date, f float8, r real);
create type zones as range (subtype = timetz);
"""
PARTS = "(NaN,12:00+02,infinity,Infinity,-Infinity)"
ZONED = ("00:00+14", "24:00-12", "12:34:56.789+05:30", "23:59:59.999999-15:59:59", "00:00:00.000001+15:59:59")
# Of these types each value must be as pgoutput sends it, unless the table of faults has the column.
VALUES: dict[str, tuple[str, ...]] = {
    "bool": ("true", "false"),
    "int2": ("-32768",),
    "int4": ("-2147483648",),
    "int8": ("-9223372036854775808",),
    "oid": ("4294967295", "0"),
    "float4": ("NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "1e21", "16777216"),
    "float8": ("NaN", "Infinity", "-Infinity", "-0", "5e-324", "1e16", "123456789012345680", "0.30000000000000004"),
    "numeric": ("NaN", "Infinity", "-Infinity", "0.00", "1e40", "-0.000000000000000000001"),
    "numeric(6,2)": ("NaN", "1.10"),
    "money": ("-0.01", "92233720368547758.07", "-92233720368547758.08", "1234.56"),
    "text": ("", "é\u2028\u0001\\\"'/ tab\t line\n", "NaN", "null"),
    "varchar(9)": ("null",),
    "bpchar(4)": ("a",),
    '"char"': ("x", "", "\\200"),
    "name": ("n",),
    "citext": ("Ab",),
    "bytea": ("\\x", "\\x00ff5c22"),
    "bit(3)": ("101",),
    "varbit": ("", "10101"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000",),
    "json": ('{"a": 1,  "b":"\\u00e9\\n"}', "null", '"x"'),
    "jsonb": ('{"a": 1.10}', "null"),
    "jsonpath": ("$.a",),
    "xml": ('<a>"x"</a>',),
    "date": ("infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "0001-01-01"),
    "time": ("00:00", "24:00", "23:59:59.999999"),
    "time(3)": ("23:59:59.999",),
    "timetz": ZONED,
    "timetz(3)": ("12:34:56.789+05:30",),
    "timestamp": ("infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999", "0001-01-01"),
    "timestamptz": ("infinity", "-infinity", "4713-01-02 00:00:00 BC", "294276-12-31 23:59:59.999999+00"),
    "interval": ("0", "-1 year -2 mons +3 days -04:05:06.7", "178000000 years", "-00:00:00.000001"),
    "inet": ("::1", "10.0.0.1/8"),
    "cidr": ("10.0.0.0/8",),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "point": ("(NaN,Infinity)", "(-0,1e-300)"),
    "line": ("{1,2,3}",),
    "lseg": ("[(1,2),(3,4)]",),
    "box": ("(1,2),(3,4)", "(NaN,Infinity),(1,-Infinity)"),
    "path": ("((1,2),(3,4))",),
    "polygon": ("((1,2),(3,4))",),
    "circle": ("<(1,2),3>", "<(NaN,2),Infinity>"),
    "int4range": ("empty", "(,)", "[1,10)"),
    "numrange": ("[NaN,NaN]", "[1.10,Infinity]"),
    "tsrange": ("[-infinity,infinity)",),
    "tstzrange": ('["2020-01-01 00:00:00+02",)',),
    "daterange": ("[infinity,infinity]",),
    "zones": ("[10:00+02,12:00+02)",),
    "int4multirange": ("{}", "{[1,3),[5,7)}"),
    "nummultirange": ("{[1,NaN]}",),
    "tsvector": ("'a' 'b':1A",),
    "tsquery": ("'a' & 'b'",),
    "pg_lsn": ("0/16B3748",),
    "xid": ("42",),
    "xid8": ("42",),
    "tid": ("(1,2)",),
    "aclitem": ("postgres=r/postgres",),
    "int2vector": ("1 2",),
    "oidvector": ("1 2",),
    "hstore": ('"NaN"=>"1", "b c"=>NULL',),
    "ltree": ("a.b",),
    "geometry": ("POINT(1 2)", "SRID=4326;POINT(NaN 2)"),
    "geography": ("POINT(1 2)",),
    "mood": ("so so",),
    "float8[]": ("{NaN,Infinity,-0,NULL}",),
    "float4[]": ("{NaN,-Infinity}",),
    "numeric[]": ("{NaN,1.10,NULL}", "[2:3]={1,2}"),
    "timetz[]": ("{00:00+14,12:00-05:30}",),
    "date[]": ("{infinity}",),
    "timestamptz[]": ("{infinity,2020-01-01 00:00:00+02}",),
    "money[]": ("{1.10}",),
    "bytea[]": ('{"\\\\x00ff"}',),
    "json[]": ('{"{\\"a\\": 1}"}',),
    "bool[]": ("{t,f}",),
    "interval[]": ("{1 day}",),
    "mood[]": ('{"so so"}',),
    "a_numeric": ("NaN", "1.5"),
    "a_float": ("NaN", "-Infinity"),
    "a_zoned": ZONED,
    "another_zoned": ZONED,
    "a_date": ("infinity",),
    "a_bytea": ("\\x00ff",),
    "a_bool": ("true",),
    "a_money": ("1.10",),
    "a_timestamp": ("infinity",),
    "a_point": ("(1,2)",),
    "a_big": ("5",),
    "numerics": ("{NaN}",),
    "parts": (PARTS,),
    "parts[]": (f'{{"{PARTS}"}}',),
}
# Rules of extensions that no package of the tests has; types by other ways of writing.
ELSEWHERE = {"vector", "halfvec", "sparsevec", "unknown"}

Texts = dict[tuple[str, int], str | None]


def texts(stream: PluginStream) -> tuple[Texts, list[TableSchema]]:
    """Table and id of each new row → the text of its value, as the stream has it; and the tables."""
    found: Texts = {}
    with ExitStack() as stack:
        connection = stack.enter_context(connect(stream.options))
        catalog = Catalog(connection, stream.options.publication_name, plugin.sent(stream.options))
        tables = catalog.tables(stream.includes)
        registry = TableRegistry(catalog, stream.includes, tables)
        relations = SeenRelations(catalog, stream.includes, tables)
        translated = translator(stream.options.plugin_name.on_server, relations)
        received = stack.enter_context(ReplicationStream(stream.options))
        goal, state = int(wal_end(connection)), StreamState()

        def step() -> bool:
            segment = received.read(1000, 1 << 20, 0.05)
            if segment is None:
                received.tick()
                return received.wal_end >= goal and state.open is None and not translated.is_open
            for each in translated.feed(segment):
                for run in sort_segment(each, state, registry.describe).runs:
                    rows = decode_rows(run.raw, run.relation).new
                    columns = dict(zip(rows.names, rows.text, strict=True))
                    ids = [int(number) for number in columns["id"].cast("string").to_pylist()]
                    values = columns["v"].cast("binary").to_pylist()
                    texts_of = [None if value is None else value.decode() for value in values]
                    found.update({(run.table.id.table, i): t for i, t in zip(ids, texts_of, strict=True)})
            return False

        wait_until(step, 60, "the stream to reach the end")
        return found, tables


@contextmanager
def filled(cluster: Cluster, database: str) -> Iterator[dict[str, PluginStream]]:
    """A slot of each plug-in, and behind them a table of each type with its values, and one without."""
    cluster.psql(database, "-qc", SETUP)
    for number, kind in enumerate(VALUES):
        cluster.execute(database, f"create table t{number} (id int primary key, v {kind})")
    with streams(cluster, database) as opened:
        with cluster.connect(database) as connection:
            for number, (kind, values) in enumerate(VALUES.items()):
                for row, value in enumerate(values):
                    connection.execute(f"insert into t{number} values (%s, %s::text::{kind})", (row, value))
                connection.execute(f"insert into t{number} values (99, null)")
        yield opened


def test_what_differs_is_in_the_table_of_faults(debian15: Cluster) -> None:
    database = debian15.database("values")
    with filled(debian15, database) as opened:
        sent, described = {}, {}
        for name, stream in opened.items():
            sent[name], described[name] = texts(stream)
    by_name = {f"t{number}": kind for number, kind in enumerate(VALUES)}
    mine = [table for table in described["pgoutput"] if table.id.table in by_name]
    claimed = {rule_for(column).label for table in mine for column in table.columns}
    assert {rule.label for rule in RULES} - claimed <= ELSEWHERE
    expected = sent["pgoutput"]
    assert len(expected) == sum(len(values) + 1 for values in VALUES.values())
    for name in set(PLUGINS) - {"pgoutput"}:
        assert sent[name].keys() == expected.keys(), name
        differing = {
            by_name[table]
            for (table, row), text in expected.items()
            if value_of(by_name[table], text) != value_of(by_name[table], sent[name][table, row])
        }
        options = opened[name].options
        known = {
            by_name[one.table.id.table]
            for one in concerned_tables(options, 150018, mine)
            if one.columns == ("v",) and one.identifying == ()
        }
        assert differing == known, name


def value_of(kind: str, text: str | None) -> str | None:
    """The text of a value; of numbers another one if there are several for one number."""
    if text is not None and kind == "money":
        return text.replace("$", "").replace(",", "")
    return str(float(text)) if text is not None and kind in ("float4", "float8") else text
