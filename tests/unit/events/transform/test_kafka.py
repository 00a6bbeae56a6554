"""Kafka's own transforms on small batches."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.transform.date_format import DateFormat
from cdc_core.events.transform.java_text import java_double
from cdc_core.events.transform.literal import parse_literal
from cdc_core.schema.connect import ConnectSchema
from tests.unit.events.transform.records import ROW, batch, data, event, headers, keys, names, one, tombstones, values

PLAIN = ROW.replace(optional=False)
ROWS = [{"id": 1, "name": "a", "kind": None}, {"id": 2, "name": None, "kind": "k"}]


def fields(made) -> dict[str, ConnectSchema]:  # type: ignore[no-untyped-def]
    return dict(made[0].value.schema.fields)


def test_replace_field() -> None:
    found = one("ReplaceField$Value", exclude="name", renames="kind:sort").apply(batch(ROWS, PLAIN))
    assert values(found) == [{"id": 1, "sort": "plain"}, {"id": 2, "sort": "k"}]
    kept = one("ReplaceField$Value", include="kind", replace__null__with__default="false").apply(batch(ROWS, PLAIN))
    assert values(kept) == [{"kind": None}, {"kind": "k"}]
    assert values(one("ReplaceField$Value", exclude="x").apply(tombstones())) == [None]
    assert keys(one("ReplaceField$Key", renames="id:k").apply(tombstones())) == [{"k": 1}]


def test_insert_field() -> None:
    settings = {"topic__field": "t!", "static__field": "s", "static__value": "v", "timestamp__field": "at"}
    found = one("InsertField$Value", **settings).apply(batch(ROWS[:1], PLAIN))
    assert values(found) == [{"id": 1, "name": "a", "kind": "plain", "t": "p.s.t", "at": None, "s": "v"}]
    assert not fields(found)["t"].optional and fields(found)["s"].optional
    assert fields(found)["at"].name == "org.apache.kafka.connect.data.Timestamp"
    for name in ("offset", "timestamp"):
        with pytest.raises(RecordError):
            one("InsertField$Value", **{f"{name}__field": "x!"}).apply(batch(ROWS, PLAIN))
    with pytest.raises(ConfigError, match="inserts no field"):
        one("InsertField$Value")


def test_mask_field() -> None:
    found = one("MaskField$Value", fields="id,name").apply(batch(ROWS, PLAIN))
    assert values(found) == [{"id": 0, "name": "", "kind": "plain"}, {"id": 0, "name": None, "kind": "k"}]
    custom = one("MaskField$Value", fields="name,kind", replacement="***").apply(batch(ROWS, PLAIN))
    assert values(custom) == [{"id": 1, "name": "***", "kind": "***"}, {"id": 2, "name": None, "kind": "***"}]
    for made in (lambda: one("MaskField$Value", fields="id", replacement="x").apply(batch(ROWS, PLAIN)),):
        with pytest.raises(RecordError, match="no int32"):
            made()
    with pytest.raises(RecordError):
        one("MaskField$Value", fields="id").apply(tombstones())


def test_value_to_key_and_extract_field() -> None:
    found = one("ValueToKey", fields="kind,id").apply(batch(ROWS, PLAIN))
    assert keys(found) == [{"kind": "plain", "id": 1}, {"kind": "k", "id": 2}]
    assert found[0].key.schema == ConnectSchema("struct", fields=(PLAIN.fields[2], PLAIN.fields[0]))
    with pytest.raises(RecordError, match="Field does not exist: x"):
        one("ValueToKey", fields="x").apply(batch(ROWS, PLAIN))
    extracted = one("ExtractField$Key", field="id").apply(batch(ROWS, PLAIN))
    assert keys(extracted) == [1, 1] and extracted[0].key.schema == ConnectSchema("int32")
    assert values(one("ExtractField$Value", field="kind").apply(batch(ROWS, PLAIN))) == ["plain", "k"]
    assert values(one("ExtractField$Value", field="kind").apply(tombstones())) == [None]
    with pytest.raises(RecordError, match="Unknown field"):
        one("ExtractField$Value", field="x").apply(batch(ROWS, PLAIN))


def test_nested_fields() -> None:
    outer = ConnectSchema("struct", fields=(("a.b", ConnectSchema("struct", fields=(("c", ConnectSchema("int32")),))),))
    found = one("ExtractField$Value", field="`a.b`.c", field__syntax__version="V2")
    assert values(found.apply(batch([{"a.b": {"c": 7}}], outer))) == [7]


def test_hoist_field() -> None:
    assert values(one("HoistField$Value", field="row").apply(batch(ROWS[:1], PLAIN))) == [{"row": ROWS[0]}]
    with pytest.raises(RecordError):
        one("HoistField$Value", field="row").apply(batch([None], PLAIN))
    # Connect's map without a schema has no field for any other name, which is null and no error.
    [nothing] = one("HoistField$Value", field="row").apply(tombstones())
    assert values(one("ExtractField$Value", field="other").apply(nothing)) == [None]


def test_cast() -> None:
    kinds = ConnectSchema(
        "struct",
        fields=tuple(
            (kind, ConnectSchema(kind, optional=True)) for kind in ("int32", "double", "string", "boolean", "bytes")
        ),
    )
    rows = [
        {"int32": 300, "double": 1e10, "string": "12", "boolean": True, "bytes": b"ab"},
        dict.fromkeys(kinds.fields),
    ]
    rows[1] = {name: None for name, _ in kinds.fields}
    spec = "int32:int8,double:string,string:float64,boolean:int64,bytes:string"
    found = one("Cast$Value", spec=spec).apply(batch(rows, kinds))
    expected = {"int32": 44, "double": "1.0E10", "string": 12.0, "boolean": 1, "bytes": "YWI="}
    assert values(found) == [expected, rows[1]]
    assert [field.type for field in fields(found).values()] == ["int8", "string", "double", "int64", "string"]
    assert keys(one("Cast$Key", spec="id:string").apply(batch(rows, kinds))) == [{"id": "1"}] * 2
    with pytest.raises(RecordError):
        one("Cast$Value", spec="string:int8").apply(batch([{**rows[0], "string": "128"}], kinds))
    with pytest.raises(ConfigError, match="FIELD:TYPE"):
        one("Cast$Value", spec="a:decimal")
    whole = one("Cast$Value", spec="string").apply(batch([7], ConnectSchema("int32")))
    assert values(whole) == ["7"]


def test_timestamp_converter() -> None:
    row = ConnectSchema(
        "struct", fields=(("at", ConnectSchema("int64", optional=True, name="io.debezium.time.Timestamp")),)
    )
    rows = [{"at": 1_600_000_000_123}, {"at": None}]
    text = one("TimestampConverter$Value", field="at", target__type="string", format="yyyy-MM-dd'T'HH:mm:ss.SSSX")
    assert values(text.apply(batch(rows, row))) == [{"at": "2020-09-13T12:26:40.123Z"}, {"at": None}]
    for target, value in (("unix", 1_600_000_000_123), ("Date", 18518), ("Time", 44_800_123)):
        found = one("TimestampConverter$Value", field="at", target__type=target).apply(batch(rows, row))
        assert values(found)[0] == {"at": value}
    micros = one("TimestampConverter$Value", field="at", target__type="Timestamp", unix__precision="microseconds")
    assert values(micros.apply(batch([{"at": 1_600_000_000_123_456}], row))) == [{"at": 1_600_000_000_123}]
    back = one("TimestampConverter$Value", target__type="unix", format="dd.MM.yyyy")
    assert values(back.apply(batch(["13.09.2020"], ConnectSchema("string")))) == [1_599_955_200_000]
    with pytest.raises(ConfigError, match="format is missing"):
        one("TimestampConverter$Value", target__type="string")


def test_routers() -> None:
    renamed = one("RegexRouter", regex=r"(?<head>\w+)\.(.*)", replacement="${head}-$2").apply(batch(ROWS, PLAIN))
    assert names(renamed) == ["p-s.t"] * 2
    assert names(one("RegexRouter", regex="s", replacement="x").apply(batch(ROWS, PLAIN))) == ["p.s.t"] * 2
    timed = replace(batch(ROWS, PLAIN), timestamp=pa.array([0, 86_400_000]))
    assert names(one("TimestampRouter", topic__format="${topic}_${timestamp}").apply(timed)) == [
        "p.s.t_19700101",
        "p.s.t_19700102",
    ]
    with pytest.raises(RecordError, match="no timestamp"):
        one("TimestampRouter").apply(batch(ROWS, PLAIN))


def test_headers() -> None:
    inserted = one("InsertHeader", header="h", value__literal="2").apply(batch(ROWS[:1], PLAIN))
    assert headers(inserted) == [{"h": 2}] and inserted[0].headers[0].data.schema == ConnectSchema("int8")
    assert headers(one("DropHeaders", headers="h").apply(inserted[0])) == [{}]
    moved = one("HeaderFrom$Value", fields="kind", headers="k", operation="move").apply(batch(ROWS, PLAIN))
    assert headers(moved) == [{"k": "plain"}, {"k": "k"}] and values(moved)[0] == {"id": 1, "name": "a"}


def test_flatten_and_schema_metadata() -> None:
    found = one("Flatten$Value", delimiter="_").apply(batch([event("c", after=ROWS[0]), event("d", before=ROWS[1])]))
    first, second = values(found)
    assert (first["after_name"], first["after_kind"], first["before_kind"], first["source_db"]) == (
        "a",
        "plain",
        None,
        "d",
    )
    assert second["before_id"] == 2 and fields(found)["after_id"].optional and not fields(found)["op"].optional
    named = one("SetSchemaMetadata$Value", schema__name="Other", schema__version="0").apply(batch(ROWS, PLAIN))
    assert named[0].value.schema == PLAIN.replace(name="Other", version=0)
    assert values(one("SetSchemaMetadata$Value", schema__name="x").apply(tombstones())) == [None]
    with pytest.raises(RecordError, match="Only structs"):
        one("SetSchemaMetadata$Value", schema__name="x").apply(batch(["t"], ConnectSchema("string")))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("true", "boolean", True),
        ("300", "int16", 300),
        ("70000", "int32", 70000),
        ("5000000000", "int64", 5000000000),
        ("1.0", "int8", 1),
        ("1.5", "float", 1.5),
        ("abc", "string", "abc"),
        ('"true"', "string", '"true"'),
        (".5", "string", ".5"),
        ("1e30", "float", 1.0000000150474662e30),
        ("1.7976931348623157E308", "double", 1.7976931348623157e308),
        ("1E400", "bytes", b"\x01"),
        ("99999999999999999999", "bytes", (10**20 - 1).to_bytes(9, "big")),
        ("2020-13-45", "int32", 18672),
        ("12:13:14.567Z", "int32", 43994567),
        ("2020-01-02", "int32", 18263),
        ("2020-01-02T03:04:05.678Z", "int64", 1577934245678),
    ],
)
def test_literals(text: str, kind: str, value: object) -> None:
    schema, found = parse_literal(text, "x")
    assert schema is not None and (schema.type, found) == (kind, value)


def test_java_doubles() -> None:
    found = [java_double(one) for one in (0.0, -0.0, 1.0, 0.001, 0.0001, 1234567.0, 12345678.0, 1e300, float("nan"))]
    assert found == ["0.0", "-0.0", "1.0", "0.001", "1.0E-4", "1234567.0", "1.2345678E7", "1.0E300", "NaN"]
    assert java_double(0.1, single=True) == "0.1"


def test_date_formats() -> None:
    at = 1_600_000_000_123
    for pattern, text in (
        ("EEE, d MMM yyyy h:mm a", "Sun, 13 Sep 2020 12:26 PM"),
        ("yyyyMMddHHmmssSSS", "20200913122640123"),
        ("yy'T'''D Z", "20T'257 +0000"),
    ):
        assert DateFormat(pattern, "x").text(at) == text
    assert DateFormat("yyyyMMddHHmmssSSS", "x").millis("20200913122640123") == at
    assert DateFormat("yyyy-MM-dd HH:mm Z", "x").millis("2020-09-13 14:26 +0200") == 1_599_999_960_000
    # As in Java, the microseconds are read as so many milliseconds: the next pattern is no number.
    lenient = DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "x")
    assert lenient.millis("2018-06-20T13:13:16.945104Z") == 1_529_501_341_104
    with pytest.raises(ConfigError, match="letter W"):
        DateFormat("W", "transforms.x.format")


def test_records_without_the_field_of_a_header() -> None:
    with pytest.raises(RecordError, match="not a field"):
        one("HeaderFrom$Value", fields="x", headers="h", operation="copy").apply(batch(ROWS, PLAIN))
    assert data(PLAIN, [None]).valid.tolist() == [False]
