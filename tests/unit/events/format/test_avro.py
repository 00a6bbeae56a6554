"""Avro: what is written is what fastavro, another implementation, reads; and the registry's client."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.errors import ConfigError, RecordError, TransientError
from cdc_core.events.envelope.batch import SCHEMALESS, Data, arrow_type
from cdc_core.events.format.avro_binary import encoded
from cdc_core.events.format.avro_format import AvroFormat
from cdc_core.events.format.avro_schema import AvroRules, avro_schema
from cdc_core.events.transform.settings import Settings
from cdc_core.schema.connect import ConnectSchema
from tests.support.registry import TestRegistry
from tests.unit.events.transform.records import EVENT, ONE, batch, event, tombstones
from tests.unit.events.transform.records import one as one_transform

TEXT = ConnectSchema("string", optional=True)
WIDE = ConnectSchema(
    "struct",
    name="a.b.Row",
    fields=(
        ("i", ConnectSchema("int32")),
        ("l", ConnectSchema("int64", optional=True)),
        ("f", ConnectSchema("float", optional=True)),
        ("d", ConnectSchema("double", optional=True)),
        ("b", ConnectSchema("boolean", optional=True)),
        ("t", TEXT),
        ("y", ConnectSchema("bytes", optional=True)),
        ("a", ConnectSchema("array", optional=True, items=TEXT)),
        ("m", ConnectSchema("map", optional=True, keys=ConnectSchema("string"), items=TEXT)),
        ("p", ConnectSchema("map", optional=True, keys=TEXT, items=ConnectSchema("int32"))),
        ("s", ConnectSchema("struct", optional=True, name="a.b.Inner", fields=(("x", ConnectSchema("int16")),))),
        ("o", ConnectSchema("int32", optional=True, default=9, has_default=True)),
    ),
)
ROWS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.none() | st.floats(width=32, allow_nan=False),
        "d": st.none() | st.floats(allow_nan=False),
        "b": st.none() | st.booleans(),
        "t": st.none() | st.text(st.characters(exclude_categories=("Cs",))),
        "y": st.none() | st.binary(),
        "a": st.none() | st.lists(st.none() | st.text("ab")),
        "m": st.none() | st.lists(st.tuples(st.text("ab"), st.none() | st.text("c")), unique_by=lambda pair: pair[0]),
        "p": st.none() | st.lists(st.tuples(st.text("ab"), st.integers(0, 99)), unique_by=lambda pair: pair[0]),
        "s": st.none() | st.fixed_dictionaries({"x": st.integers(-(2**15), 2**15 - 1)}),
        "o": st.none() | st.integers(0, 9),
    }
)


def read(schema: Any, message: bytes) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(message), fastavro.parse_schema(schema))


def expected(row: dict[str, Any]) -> dict[str, Any]:
    out = dict(row)
    out["m"] = None if row["m"] is None else dict(row["m"])
    out["p"] = None if row["p"] is None else [{"key": key, "value": value} for key, value in row["p"]]
    out["o"] = 9 if row["o"] is None else row["o"]
    return out


@given(st.lists(ROWS, max_size=6))
def test_another_reader_gets_the_values(rows: list[dict[str, Any]]) -> None:
    data = Data(WIDE, pa.array(rows, type=arrow_type(WIDE)))
    messages = encoded(data, AvroRules()).to_pylist()
    schema = avro_schema(WIDE, AvroRules())
    assert [read(schema, message) for message in messages] == [expected(row) for row in rows]
    # Columns of one value are encoded once.
    same = Data(WIDE, pa.array(rows[:1] * 3, type=arrow_type(WIDE)))
    assert encoded(same, AvroRules()).to_pylist() == messages[:1] * 3


def test_names_and_namespaces() -> None:
    inner = ConnectSchema("struct", name="a.b.Inner", fields=(("x", ConnectSchema("int8")),))
    other = ConnectSchema("struct", name="c.Other", version=2, doc="d", fields=(("x", inner), ("y", inner)))
    schema = avro_schema(ConnectSchema("struct", name="a.b.Outer", fields=(("i", inner), ("o", other))), AvroRules())
    made = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "x", "type": {"type": "int", "connect.type": "int8"}}],
    }
    assert schema["fields"][0]["type"] == {**made, "connect.name": "a.b.Inner"}
    assert schema["fields"][1]["type"]["namespace"] == "c"
    assert [field["type"] for field in schema["fields"][1]["type"]["fields"]] == ["a.b.Inner", "a.b.Inner"]
    bare = avro_schema(ConnectSchema("struct", fields=(("x", other),)), AvroRules(metadata=False))
    assert (bare["namespace"], bare["name"]) == ("io.confluent.connect.avro", "ConnectDefault")
    assert "connect.name" not in bare["fields"][0]["type"]


def test_decimals_and_times() -> None:
    decimal = ConnectSchema(
        "bytes", name="org.apache.kafka.connect.data.Decimal", version=1, parameters=(("scale", "2"),)
    )
    assert avro_schema(decimal, AvroRules()) == {
        "type": "bytes",
        "scale": 2,
        "precision": 64,
        "connect.version": 1,
        "connect.parameters": {"scale": "2"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }
    date = ConnectSchema("int32", name="org.apache.kafka.connect.data.Date", version=1)
    assert avro_schema(date, AvroRules())["logicalType"] == "date"


def test_names_that_avro_does_not_permit() -> None:
    odd = ConnectSchema("struct", name="a.B", fields=(("1 ä", TEXT),))
    with pytest.raises(RecordError, match="does not permit the name"):
        avro_schema(odd, AvroRules())
    assert avro_schema(odd, AvroRules(scrub=True))["fields"][0]["name"] == "x1__C3_A4"
    # Avro looks at names only, not at namespaces.
    space = ConnectSchema("struct", name="a.x y..B", fields=(("id", TEXT),))
    assert avro_schema(space, AvroRules())["namespace"] == "a.x y."
    assert avro_schema(space, AvroRules(scrub=True))["namespace"] == "a.x_y."


def test_texts_without_a_schema() -> None:
    """Connect has them of JSON that is to be expanded and has no type; the record names the type they are of."""
    without = Data(ConnectSchema("string", optional=True, name=SCHEMALESS), pa.array(["[]", None], pa.large_string()))
    with TestRegistry() as registry:
        one, none = form(registry).encode(without, EVENTS).to_pylist()
        value = read(json.loads(registry.schemas[0]), one[5:])
        nothing = one_transform("HoistField$Value", field="line").apply(tombstones())[0]
        [hoisted] = form(registry).encode(nothing.value, nothing).to_pylist()
        [entry] = read(json.loads(registry.schemas[0]), hoisted[5:])["map"]
    assert entry["key"]["string"] == "line" and not any(entry["value"].values())
    assert none is None
    assert {name: found for name, found in value.items() if found is not None} == {"string": "[]"}


def form(registry: TestRegistry, **settings: str) -> AvroFormat:
    values = {"schema.registry.url": registry.url, **{name.replace("__", "."): text for name, text in settings.items()}}
    return AvroFormat(Settings("value.converter", values), is_key=False)


EVENTS = batch([event("c", after=ONE)] * 2)


def test_the_wire_format_and_the_subjects() -> None:
    strategies = "io.confluent.kafka.serializers.subject."
    with TestRegistry() as registry:
        messages = form(registry).encode(EVENTS.value, EVENTS).to_pylist()
        assert [message[:5] for message in messages] == [b"\0\0\0\0\1"] * 2
        assert read(json.loads(registry.schemas[0]), messages[0][5:])["after"]["name"] == "a"
        for name in ("RecordName", "TopicRecordName"):
            made = form(registry, value__subject__name__strategy=f"{strategies}{name}Strategy")
            made.encode(EVENTS.value, EVENTS)
        assert list(registry.subjects) == ["p.s.t-value", "p.s.t.Envelope", "p.s.t-p.s.t.Envelope"]
        optional = Data(EVENTS.value.schema.replace(optional=True), EVENTS.value.values)  # type: ignore[union-attr]
        with pytest.raises(RecordError, match="RecordNameStrategy needs"):
            made.encode(optional, EVENTS)
        assert form(registry).encode(tombstones().value, tombstones()).to_pylist() == [None]
        asked = len(registry.requests)
        once = form(registry)
        once.encode(EVENTS.value, EVENTS)
        once.encode(EVENTS.value, EVENTS)
        assert len(registry.requests) == asked + 1


def test_without_registering() -> None:
    with TestRegistry() as registry:
        with pytest.raises(RecordError, match="40403"):
            form(registry, auto__register__schemas="false").encode(EVENTS.value, EVENTS)
        form(registry).encode(EVENTS.value, EVENTS)
        found = form(registry, auto__register__schemas="false").encode(EVENTS.value, EVENTS)
        latest = form(registry, auto__register__schemas="false", use__latest__version="true")
        assert latest.encode(EVENTS.value, EVENTS).equals(found)
        other = batch([{"ts": 1}], ConnectSchema("struct", name="p.Other", fields=(("ts", ConnectSchema("int64")),)))
        with pytest.raises(RecordError, match="does not have the fields"):
            latest.encode(other.value, other)
        registry.incompatible.add("p.s.t-value")
        with pytest.raises(RecordError, match="409"):
            form(registry).encode(other.value, other)


def test_credentials() -> None:
    with TestRegistry(user="me:secret") as registry:
        with pytest.raises(ConfigError, match="refused the connector: 401"):
            form(registry).encode(EVENTS.value, EVENTS)
        given_ = {"basic__auth__credentials__source": "USER_INFO", "basic__auth__user__info": "me:secret"}
        assert form(registry, **given_).encode(EVENTS.value, EVENTS).null_count == 0
        url = registry.url.replace("http://", "http://me:secret@")
        assert form(registry, schema__registry__url=url).encode(EVENTS.value, EVENTS).null_count == 0
        with pytest.raises(ConfigError, match="info is missing"):
            form(registry, basic__auth__credentials__source="USER_INFO")


def test_a_registry_that_does_not_answer() -> None:
    with TestRegistry() as registry:
        second = f"http://127.0.0.1:1,{registry.url}"
        assert form(registry, schema__registry__url=second).encode(EVENTS.value, EVENTS).null_count == 0
        away = form(registry, schema__registry__url="http://127.0.0.1:1")
    with pytest.raises(TransientError, match="did not answer"):
        away.encode(EVENTS.value, EVENTS)
    with pytest.raises(ConfigError, match="url is missing"):
        AvroFormat(Settings("key.converter", {}), is_key=True)
    assert EVENT.name == "p.s.t.Envelope"


def test_headers_and_a_proxy() -> None:
    """The test's registry answers as a proxy, too: the address that it is asked for is in the request."""
    with TestRegistry(user="cdc:secret") as registry:
        basic = "Basic " + base64.b64encode(b"cdc:secret").decode()
        host, port = registry.url.removeprefix("http://").split(":")
        by_proxy = {"schema__registry__url": "http://registry.invalid", "proxy__host": host, "proxy__port": port}
        made = form(registry, **by_proxy, request__header__Authorization=basic)
        assert made.encode(EVENTS.value, EVENTS).null_count == 0
    assert registry.requests == [("POST", "/subjects/p.s.t-value/versions")]
    with pytest.raises(ConfigError, match="must be set together"):
        form(registry, proxy__host="h")
