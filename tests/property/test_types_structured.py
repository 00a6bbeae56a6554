"""Structured types with PostgreSQL as the oracle: what it prints is read back to what went in.

The server writes the text, and its own ``to_json`` (or hstore's ``each``) says what the text means. Not covered here:
arrays of dates before 1582, which Debezium's driver reads in another calendar.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.decode.raw_columns import RawColumns
from cdc_core.lake.rows.change_rows import RESCUED
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import FailureHandlingMode, TypeOptions
from tests.support.cluster import Cluster
from tests.unit.types.converters import array_of, base, codec_of, event_of, from_extension, values

Connection = psycopg.Connection[tuple[Any, ...]]

# Everything that array_out, hstore_out and JSON must escape, and characters of one to four bytes.
TEXT = st.text(st.sampled_from("ab N\"\\,{}=>;'\n\t\x01\x7fé日😀"), max_size=6) | st.sampled_from(["NULL", "null", ""])
ELEMENTS = {
    "text": TEXT,
    "int4": st.integers(-(2**31), 2**31 - 1),
    "int8": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "float8": st.floats(allow_nan=False, allow_infinity=False),
}
BATCH = 12


@pytest.fixture(scope="module")
def server(debian15: Cluster) -> Iterator[Connection]:
    """A database with hstore and PostGIS."""
    database = debian15.database("structured")
    with debian15.connect(database) as connection:
        connection.execute("create extension hstore")
        connection.execute("create extension postgis")
        yield connection


def ask(connection: Connection, sql_type: str, meaning: str, given_values: list[Any]) -> list[tuple[Any, ...]]:
    """(text, meaning) of each value as the server sees it."""
    rows = ", ".join(f"(%s::{sql_type})" for _ in given_values)
    return connection.execute(f"select v::text, {meaning} from (values {rows}) as t (v)", given_values).fetchall()


@pytest.mark.parametrize("name", ELEMENTS)
def test_arrays_read_back(server: Connection, name: str) -> None:
    codec = codec_of(array_of(base(name)))
    element = st.none() | ELEMENTS[name]

    @settings(max_examples=15)
    @given(st.lists(st.lists(element, max_size=5), min_size=1, max_size=BATCH), st.integers(-3, 3))
    def check(arrays: list[list[Any]], lower: int) -> None:
        asked = ask(server, f"{name}[]", "to_json(v)::text", arrays)
        texts = [text for text, _ in asked]
        drawn = [f"[{lower}:{lower + len(a) - 1}]={t}" if a else t for a, t in zip(arrays, texts, strict=True)]
        bounded = ask(server, f"{name}[]", "coalesce(array_lower(v, 1), 1)", drawn)
        meant = [json.loads(meaning) for _, meaning in asked]
        assert values(codec.natural.convert, *texts) == meant == arrays
        # Beside those that fit: an array is a list if its lower bound is one, else its text as the server writes it.
        held = [(array, None) for array in arrays]
        rescued = [
            (array, None) if first == 1 else (None, text) for array, (text, first) in zip(arrays, bounded, strict=True)
        ]
        assert lake_holds(array_of(base(name)), [*texts, *(text for text, _ in bounded)]) == held + rescued
        assert [text for _, text in rescued if text] == [
            d for d, a in zip(drawn, arrays, strict=True) if a and lower != 1
        ]
        if codec.event is not None:
            assert values(codec.event.convert, *texts) == arrays

    check()


def test_arrays_of_more_dimensions_are_distinguished_from_flat_ones(server: Connection) -> None:
    codec = codec_of(array_of(base("text")))

    @settings(max_examples=15)
    @given(st.lists(st.lists(st.lists(TEXT, min_size=2, max_size=2), min_size=1, max_size=3), min_size=1, max_size=5))
    def check(arrays: list[list[list[str]]]) -> None:
        texts = [text for text, _ in ask(server, "text[]", "1", arrays)]
        mixed = [text for pair in texts for text in (pair, "{x}")]
        converted = codec.natural.convert(pa.array(mixed))
        assert converted.bad is not None
        assert converted.bad.to_pylist() == [True, False] * len(texts)

    check()


def test_hstore_reads_back_in_javas_order(server: Connection) -> None:
    natural = codec_of(from_extension("hstore")).natural
    event = event_of(from_extension("hstore"))

    @settings(max_examples=25)
    @given(st.lists(st.dictionaries(TEXT, st.none() | TEXT, max_size=30), min_size=1, max_size=BATCH))
    def check(maps: list[dict[str, str | None]]) -> None:
        pairs = ", ".join("(hstore(%s::text[], %s::text[]))" for _ in maps)
        arguments = [part for each in maps for part in (list(each), list(each.values()))]
        asked = server.execute(f"select v::text from (values {pairs}) as t (v)", arguments).fetchall()
        texts = [text for (text,) in asked]
        assert [dict(value) for value in values(natural.convert, *texts)] == maps
        for written, stored in zip(values(event.convert, *texts), values(natural.convert, *texts), strict=True):
            assert list(json.loads(written).items()) == java_hash_map(stored)

    check()


def test_points_read_back(server: Connection) -> None:
    natural = codec_of(base("point")).natural
    number = st.floats(allow_infinity=True, allow_nan=False)

    @settings(max_examples=15)
    @given(st.lists(st.tuples(number, number), min_size=1, max_size=BATCH))
    def check(points: list[tuple[float, float]]) -> None:
        asked = ask(server, "point", "v[0], v[1]", [f"({x!r},{y!r})" for x, y in points])
        read = values(natural.convert, *(text for text, _, _ in asked))
        assert [(value["x"], value["y"]) for value in read] == [(x, y) for _, x, y in asked] == points

    check()


def test_geometries_read_back(server: Connection) -> None:
    natural = codec_of(from_extension("geometry")).natural
    event = event_of(from_extension("geometry"))
    number = st.floats(-1e6, 1e6)

    @settings(max_examples=15)
    @given(st.lists(st.tuples(number, number, st.sampled_from([0, 4326, 3857])), min_size=1, max_size=BATCH))
    def check(points: list[tuple[float, float, int]]) -> None:
        shapes = [f"SRID={srid};POINT({x!r} {y!r})" if srid else f"POINT({x!r} {y!r})" for x, y, srid in points]
        asked = ask(server, "geometry", "st_asewkb(v), nullif(st_srid(v), 0)", shapes)
        texts = [text for text, _, _ in asked]
        assert values(natural.convert, *texts) == [bytes(octets) for _, octets, _ in asked]
        expected = [{"wkb": bytes(octets), "srid": srid} for _, octets, srid in asked]
        assert values(event.convert, *texts) == expected

    check()


def test_vectors_read_back(embedded18: Cluster) -> None:
    dense = event_of(from_extension("vector"))
    stored = codec_of(from_extension("vector")).natural
    sparse = event_of(from_extension("sparsevec"))
    number = st.floats(allow_nan=False, allow_infinity=False, width=32)
    with embedded18.connect(embedded18.database("vectors")) as connection:
        connection.execute("create extension vector")

        @settings(max_examples=15)
        @given(st.lists(st.lists(number, min_size=1, max_size=9), min_size=1, max_size=BATCH))
        def check(vectors: list[list[float]]) -> None:
            given_texts = [json.dumps(vector) for vector in vectors]
            asked = ask(connection, "vector", "to_json(v::real[])::text", given_texts)
            texts = [text for text, _ in asked]
            assert values(stored.convert, *texts) == vectors
            assert values(dense.convert, *texts) == [json.loads(meaning) for _, meaning in asked]
            thin = [row[1] for row in ask(connection, "vector", "v::sparsevec::text", given_texts)]
            for value, vector in zip(values(sparse.convert, *thin), vectors, strict=True):
                assert value["dimensions"] == len(vector)
                filled = {place: single(entry) for place, entry in value["vector"]}
                assert filled == {place: entry for place, entry in enumerate(vector, 1) if entry != 0}

        check()


def lake_holds(pg_type: PgType, texts: list[str]) -> list[tuple[Any, str | None]]:
    """Each text's value in the lake, and its rescued text; text that no server writes would be an error."""
    table = TableSchema(TableId("public", "t"), 1, (Column("c", pg_type),))
    typer = TypingPlan(TypeOptions(), SelectionOptions(), FailureHandlingMode.FAIL).typer(table)
    rows = typer.reads(RawColumns(("c",), (pa.array(texts, pa.string()),), (None,)), 1, 1).to_pylist()
    return [(row["c"], dict(row[RESCUED] or ()).get("c")) for row in rows]


def single(number: float) -> float:
    """The 32-bit float nearest to the digits of one."""
    return float(struct.unpack("<f", struct.pack("<f", number))[0]) if math.isfinite(number) else number


def java_hash_map(pairs: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """java.util.HashMap put by put, its buckets walked: slow, plain, and apart from the vector code."""
    buckets: list[list[tuple[str, str | None]]] = [[] for _ in range(16)]
    for size, pair in enumerate(pairs, 1):
        buckets[spread(pair[0]) % len(buckets)].append(pair)
        if size > len(buckets) * 3 // 4:
            larger: list[list[tuple[str, str | None]]] = [[] for _ in range(2 * len(buckets))]
            for entry in (entry for bucket in buckets for entry in bucket):
                larger[spread(entry[0]) % len(larger)].append(entry)
            buckets = larger
    return [entry for bucket in buckets for entry in bucket]


def spread(key: str) -> int:
    """String.hashCode, its upper half mixed into the lower."""
    code = 0
    for (unit,) in struct.iter_unpack("<H", key.encode("utf-16-le")):
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code ^ code >> 16
