"""Random rows through pgoutput, decoderbufs and wal2json: the same values in the lake and in events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cluster import Cluster
from tests.support.plugin_streams import Change, PluginStream, streams

pytestmark = pytest.mark.postgres

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
COLUMNS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "i": ("int", st.integers(-(2**31), 2**31 - 1)),
    "l": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "n": ("numeric", st.decimals(allow_nan=False, allow_infinity=False, max_value=Decimal(10) ** 30).map(str)),
    "f": ("real", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "g": ("double precision", st.floats(allow_nan=False, allow_infinity=False)),
    "b": ("boolean", st.booleans()),
    "t": ("text", TEXT),
    "y": ("bytea", st.binary(max_size=40)),
    "d": ("date", st.integers(-1_000_000, 2_000_000)),
    "s": ("timestamp", st.integers(-(10**17), 2 * 10**17)),
    "z": ("timestamptz", st.integers(-(10**17), 2 * 10**17)),
    "m": ("money", st.integers(-(2**60), 2**60)),
    "j": (
        "json",
        st.recursive(TEXT | st.integers() | st.none(), lambda each: st.lists(each, max_size=3)).map(json.dumps),
    ),
    "a": ("text[]", st.lists(st.none() | TEXT, max_size=4)),
    "p": ("point", st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)).map(lambda xy: f"({xy[0]!r},{xy[1]!r})")),
}
# How a parameter becomes the column's value: dates and timestamps are counted from 1970, so that any year is possible.
VALUES = {
    "d": "date '1970-01-01' + %s::int",
    "s": "timestamp '1970-01-01' + %s::bigint * interval '1 microsecond'",
    "z": "timestamptz '1970-01-01 00:00+00' + %s::bigint * interval '1 microsecond'",
    "m": "(%s::bigint / 100.0)::money",
}
ROWS = st.lists(st.tuples(*(st.none() | strategy for _, strategy in COLUMNS.values())), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def opened(debian15: Cluster) -> Iterator[tuple[Cluster, str, dict[str, PluginStream]]]:
    """A table of these columns and a stream of each plug-in."""
    database = debian15.database("random_plugins")
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    debian15.execute(database, f"create table r (id serial primary key, {columns})")
    debian15.execute(database, "alter table r replica identity full")
    with streams(debian15, database) as found:
        yield debian15, database, found
    debian15.drop_database(database)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=ROWS)
def test_random_rows_are_the_same_through_every_plug_in(
    opened: tuple[Cluster, str, dict[str, PluginStream]], rows: list[tuple[Any, ...]]
) -> None:
    cluster, database, found = opened
    values = ", ".join(VALUES.get(name, f"%s::{kind}") for name, (kind, _) in COLUMNS.items())
    with cluster.connect(database) as session:
        for row in rows:
            session.execute(f"insert into r ({', '.join(COLUMNS)}) values ({values})", list(row))
        session.execute("update r set i = null, t = t || '\"\\'")
        session.execute("delete from r")
    read = {name: stream.read() for name, stream in found.items()}
    for name, changes in read.items():
        assert len(changes) == 3 * len(rows)
        assert changes == read["pgoutput"], (name, different(read["pgoutput"], changes))


def different(expected: list[Change], found: list[Change]) -> list[Any]:
    """The columns that differ."""
    return [
        (one, other)
        for a, b in zip(expected, found, strict=True)
        for side in ("new", "old")
        for one, other in zip(getattr(a, side) or (), getattr(b, side) or (), strict=False)
        if one != other
    ]
