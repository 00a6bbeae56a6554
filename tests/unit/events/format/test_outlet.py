"""The way out of records: JSON in all its forms, strings, bytes, CloudEvents, and records that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import Data, EventBatch, arrow_type, constant
from cdc_core.events.envelope.record import in_order
from cdc_core.events.format.avro_format import AvroFormat
from cdc_core.events.format.json_format import JsonFormat
from cdc_core.events.format.options import NUMBER_CONVERTERS, FormatOptions
from cdc_core.events.format.outlet import EventOutlet, make_outlet
from cdc_core.events.format.plain import NumberFormat
from cdc_core.events.transform.chain import Chain, TransformStep
from cdc_core.events.transform.options import ErrorTolerance, TransformOptions
from cdc_core.events.transform.settings import Settings
from cdc_core.schema.connect import ConnectSchema
from tests.support.registry import TestRegistry
from tests.unit.events.envelope import tiny
from tests.unit.events.transform.records import ONE, batch, data, event, tombstones

CHANGES: list[Any] = [
    ("I", None, {"id": "1", "name": "a", "note": "n"}),
    ("UO", {"id": "1", "name": "a", "note": "n"}, {"id": "1", "name": "b", "note": tiny.UNSENT}),
    ("UK", {"id": "1"}, {"id": "2", "name": "b", "note": None}),
    ("DK", {"id": "2"}, None),
]
EVENTS = batch([event("c", after=ONE)])


def outlet(transforms: TransformOptions | None = None, **formats: Any) -> EventOutlet:
    made = make_outlet(transforms or TransformOptions(), FormatOptions(**formats))
    assert made is not None
    return made


def lines(made: EventOutlet, records: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in made.lines(made.records(records))]


@pytest.mark.parametrize("options", [{}, {"extended_headers_enabled": False}, {"tombstones_on_delete": False}])
def test_typed_records_are_those_that_are_written_directly(options: dict[str, Any]) -> None:
    direct = replace(tiny.context(**options), run_id="r")
    plain = JsonFormat(Settings("x", {}))
    typed = replace(direct, outlet=EventOutlet(Chain(), plain, plain, plain, True, ErrorTolerance.NONE))
    raw, tuples = tiny.batch(tiny.CUSTOMERS, CHANGES)
    found = [one.lines(in_order([tiny.events(ctx=one).changes(raw, tuples, tiny.NOW)])) for one in (direct, typed)]
    assert found[0] == found[1] and len(found[0]) >= 5


def test_nothing_to_do_is_no_outlet() -> None:
    assert make_outlet(TransformOptions(), FormatOptions()) is None
    settings = (("schemas.enable", "true"),)
    assert make_outlet(TransformOptions(), FormatOptions(key_settings=settings, value_settings=settings)) is None


def test_json_without_schemas() -> None:
    made = outlet(key_settings=(("schemas.enable", "false"),), value_settings=(("schemas.enable", "false"),))
    headed = EVENTS.with_header("h", data(ConnectSchema("string"), ["v"]))
    found = lines(made, headed)[0]
    assert found["key"] == {"id": 1} and found["headers"] == [{"key": "h", "value": "v"}]
    assert found["value"]["after"] == {"id": 1, "name": "a", "kind": "plain"}
    assert lines(made, tombstones())[0]["value"] is None
    both = outlet(common_settings=(("schemas.enable", "false"),))
    assert lines(both, EVENTS)[0]["key"] == {"id": 1}


def test_json_with_nulls_and_numbers() -> None:
    settings = (("replace.null.with.default", "false"), ("decimal.format", "numeric"))
    made = outlet(value_settings=settings)
    assert lines(made, EVENTS)[0]["value"]["payload"]["after"]["kind"] is None
    name = "org.apache.kafka.connect.data.Decimal"
    decimal = ConnectSchema("bytes", name=name, version=1, parameters=(("scale", "2"),))
    row = ConnectSchema("struct", fields=(("d", decimal), ("a", ConnectSchema("array", items=decimal))))
    line = made.lines(made.records(batch([{"d": b"\x04\xd2", "a": [b"\xff", b"\0"]}], row)))[0]
    assert '"payload":{"d":12.34,"a":[-0.01,0.00]}' in line
    given = ConnectSchema("struct", fields=(("d", decimal.replace(default="AfQ=", has_default=True, optional=True)),))
    made = outlet(value_settings=(("decimal.format", "NUMERIC"),))
    line = made.lines(made.records(batch([{"d": None}], given)))[0]
    assert '"default":5.00,' in line and '"payload":{"d":5.00}' in line


def test_headers_that_only_some_records_have() -> None:
    made = outlet(common_settings=(("schemas.enable", "false"),))
    two = batch([event("c", after=ONE)] * 2)
    headed = two.with_header("h", data(ConnectSchema("string"), ["x", "y"]), np.array([False, True]))
    headed = headed.with_header("g", data(ConnectSchema("string"), ["1", "2"]))
    assert [[one["key"] for one in line["headers"]] for line in lines(made, headed)] == [["g"], ["h", "g"]]


def test_strings_and_bytes() -> None:
    text = "org.apache.kafka.connect.storage.StringConverter"
    found = lines(outlet(key_converter=text, value_converter=text), EVENTS)[0]
    assert found["key"] == "Struct{id=1}" and found["value"].startswith("Struct{after=Struct{id=1,name=a},source=")
    plain = "org.apache.kafka.connect.converters.ByteArrayConverter"
    made = outlet(value_converter=plain)
    assert lines(made, batch([b"ab"], ConnectSchema("bytes")))[0]["value"] == "YWI="
    with pytest.raises(RecordError, match="cannot write struct"):
        made.records(EVENTS)
    own = "io.debezium.converters.ByteArrayConverter"
    delegate = (("delegate.converter.type", "org.apache.kafka.connect.json.JsonConverter"),)
    more = (*delegate, ("delegate.converter.type.schemas.enable", "false"))
    assert lines(outlet(value_converter=own, value_settings=more), EVENTS)[0]["value"]["op"] == "c"


def test_headers_as_texts() -> None:
    made = outlet(header_converter="org.apache.kafka.connect.storage.SimpleHeaderConverter")
    headed = EVENTS.with_header("s", data(ConnectSchema("string"), ["v"])).with_header("k", EVENTS.key)
    found = lines(made, headed)[0]["headers"]
    assert found == [{"key": "s", "value": "v"}, {"key": "k", "value": '{"id":1}'}]


SOURCE = ConnectSchema(
    "struct",
    name="Source",
    fields=(
        *((name, ConnectSchema("string")) for name in ("connector", "name", "db")),
        ("ts_ms", ConnectSchema("int64")),
        *((name, ConnectSchema("int64", optional=True)) for name in ("lsn", "txId")),
        ("sequence", ConnectSchema("string", optional=True)),
    ),
)
ORIGIN = {"connector": "postgresql", "name": "p", "db": "d", "ts_ms": 1, "lsn": 7, "txId": None, "sequence": "[]"}
CLOUD = "io.debezium.converters.CloudEventsConverter"


def sourced() -> Any:
    assert EVENTS.value.schema is not None
    fields = tuple((name, SOURCE if name == "source" else one) for name, one in EVENTS.value.schema.fields)
    return batch([{**event("c", after=ONE), "source": ORIGIN}], EVENTS.value.schema.replace(fields=fields))


def test_cloud_events() -> None:
    found = lines(outlet(value_converter=CLOUD, value_settings=(("json.schemas.enable", "false"),)), sourced())[0]
    assert "headers" not in found
    value = found["value"]
    assert value["id"] == "name:p;lsn:7;txId:null;sequence:[]" and value["time"] == "1970-01-01T00:00:00.001Z"
    assert value["iodebeziumtsms"] == "1" and value["iodebeziumtxid"] is None
    assert value["data"] == {"before": None, "after": {"id": 1, "name": "a", "kind": "plain"}}
    short = (("extension.attributes.enable", "false"),)
    assert "iodebeziumop" not in lines(outlet(value_converter=CLOUD, value_settings=short), sourced())[0]["value"]


def test_cloud_events_of_headers() -> None:
    settings = (("metadata.source", "header,id:generate,type:generate,dataSchemaName:generate"),)
    made = outlet(value_converter=CLOUD, value_settings=settings)
    assert lines(made, sourced())[0]["value"] is None
    row = batch(
        [ONE], ConnectSchema("struct", fields=(("id", ConnectSchema("int32")), ("name", ConnectSchema("string"))))
    )
    headed = row.with_header("source", data(SOURCE, [ORIGIN])).with_header("op", data(ConnectSchema("string"), ["u"]))
    value = lines(made, headed)[0]["value"]
    assert value["iodebeziumop"] == "u" and value["data"]["payload"] == {"id": 1, "name": "a"}


def test_cloud_events_with_avro() -> None:
    with TestRegistry() as registry:
        settings = (("data.serializer.type", "avro"), ("avro.schema.registry.url", registry.url))
        value = lines(outlet(value_converter=CLOUD, value_settings=settings), sourced())[0]["value"]
        assert value["dataschema"] == f"{registry.url}/schemas/ids/1" and value["datacontenttype"] == "application/avro"
        made = outlet(value_converter=CLOUD, value_settings=(*settings, ("serializer.type", "avro")))
        assert "value_avro" in lines(made, sourced())[0]
        assert list(registry.subjects) == ["p.s.t-value", "p.s.t-data-value"]


def test_records_that_fail() -> None:
    transforms = TransformOptions(
        transforms=("k",),
        transform_settings=(("k.type", "org.apache.kafka.connect.transforms.ValueToKey"), ("k.fields", "id")),
    )
    rows = [{"id": 1}, None, {"id": 3}]
    row = ConnectSchema("struct", optional=True, fields=(("id", ConnectSchema("int32")),))
    with pytest.raises(RecordError, match="tolerance=all"):
        outlet(transforms).records(batch(rows, row))
    kept = outlet(replace(transforms, errors_tolerance=ErrorTolerance.ALL))
    assert [line["key"]["payload"] for line in lines(kept, batch(rows, row))] == [{"id": 1}, {"id": 3}]


@pytest.mark.parametrize(
    "formats",
    [{"value_converter": "com.acme.Converter"}, {"header_converter": "com.acme.Converter"}, {"key_converter": "x"}],
)
def test_unknown_converters(formats: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="which wal2lake does not have"):
        outlet(**formats)


@pytest.mark.parametrize(
    ("kind", "value", "octets"), [("int64", -2, b"\xff" * 7 + b"\xfe"), ("boolean", True, b"\x01")]
)
def test_converters_of_numbers(kind: str, value: object, octets: bytes) -> None:
    name = {"int64": "Long", "boolean": "Boolean"}[kind]
    made = NumberFormat(*NUMBER_CONVERTERS[f"org.apache.kafka.connect.converters.{name}Converter"])
    found = Data(ConnectSchema(kind, optional=True), pa.array([value, None], arrow_type(ConnectSchema(kind))))
    assert made.encode(found, EVENTS).to_pylist() == [octets, None]
    with pytest.raises(RecordError, match="cannot write string"):
        made.encode(constant("x", ConnectSchema("string"), 1), EVENTS)


class BySchema:
    """Expanded payloads divide records by schema, whatever their topics are: 0 and 2 have a text, 1 a number."""

    def apply(self, records: EventBatch) -> list[EventBatch]:
        texts, numbers = records.split(np.array([True, False, True]))
        return [
            replace(texts, value=data(ConnectSchema("string"), ["x", "y"])),
            replace(numbers, value=data(ConnectSchema("int64"), [1])),
        ]


def test_a_registry_gets_the_schemas_of_each_topic_in_the_order_of_its_records() -> None:
    plain = JsonFormat(Settings("x", {}))
    given = replace(batch([event("c", after=ONE)] * 3), topic=pa.array(["a", "b", "b"], type=pa.large_string()))
    with TestRegistry() as registry:
        avro = AvroFormat(Settings("x", {"schema.registry.url": registry.url}), is_key=False)
        made = EventOutlet(
            Chain((TransformStep(BySchema()),)), plain, avro, plain, True, ErrorTolerance.NONE, is_raw=True
        )
        assert made.records(given).column("seq").to_pylist() == [0, 1, 2]
        found = {
            subject: [json.loads(registry.schemas[number - 1]) for number in numbers]
            for subject, numbers in registry.subjects.items()
        }
    assert found == {"a-value": ["string"], "b-value": ["long", "string"]}
