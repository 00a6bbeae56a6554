"""Arrays: their text taken apart, both faces, Debezium's limits, placeholders."""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from cdc_core.schema.connect import ConnectSchema
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.types._array_text import split_arrays
from cdc_core.types.options import BinaryHandlingMode, TimePrecisionMode
from tests.unit.types.converters import (
    array_of,
    bad_places,
    base,
    codec_of,
    domain,
    enum,
    event_of,
    from_extension,
    obeys_laws,
    values,
)

TEXTS = [
    "{1,2,NULL}",
    None,
    "{}",
    "[2:4]={1,2,3}",
    "[-3:-2]={7,8}",
    "{{1,2},{3,4},{5,6}}",
    "[0:1][1:1]={{1},{2}}",
    "{1",
    "1}",
    "",
    '{"1}',
    "{,}",
    "{1,}",
    '{1"2"}',
    "{{1}",
    "{9}",
]


def split(*texts: str | None, delimiter: str = ",") -> list[list[str | None]]:
    taken = split_arrays(pa.array(texts, pa.string()), delimiter)
    elements = taken.elements.to_pylist()
    return [elements[a:b] for a, b in zip(taken.offsets, taken.offsets[1:], strict=False)]


def test_quotes_escapes_and_null_are_distinguished() -> None:
    assert split('{"a","b,c",NULL,"NULL","",null}') == [["a", "b,c", None, "NULL", "", "null"]]
    assert split(r'{"a\"b","c\\","{}","\\\\\"",x}') == [['a"b', "c\\", "{}", '\\\\"', "x"]]
    assert split("{日本,é}", '{"日,本",😀}') == [["日本", "é"], ["日,本", "😀"]]
    assert split("{(1,1),(0,0);(2,2),(1,1)}", delimiter=";") == [["(1,1),(0,0)", "(2,2),(1,1)"]]


def test_what_is_no_array_is_bad_and_harms_no_neighbour() -> None:
    taken = split_arrays(pa.array(TEXTS))
    assert [place for place, flag in enumerate(taken.bad) if flag] == [7, 8, 9, 10, 11, 12, 13, 14]
    assert [place for place, flag in enumerate(taken.nested) if flag] == [5, 6]
    assert [taken.outer[5], taken.outer[6]] == [3, 2]
    assert split(*TEXTS)[-1] == ["9"]
    assert split(*TEXTS)[3:5] == [["1", "2", "3"], ["7", "8"]]


def test_laws() -> None:
    for element in (base("int4"), base("text"), enum("1", "2")):
        codec = codec_of(array_of(element))
        obeys_laws(codec.natural.convert, codec.natural.arrow_type, *TEXTS)
        assert codec.event is not None
        obeys_laws(codec.event.convert, codec.event.arrow_type, *TEXTS)


def test_natural_face_rescues_what_a_list_cannot_hold() -> None:
    numbers = codec_of(array_of(base("int4"))).natural
    assert numbers.arrow_type == pa.list_(pa.int32())
    assert values(numbers.convert, "{1,NULL}", None, "{}") == [[1, None], None, []]
    assert bad_places(numbers.convert, "{1}", "{{1}}", "{x}", None) == [1, 2]
    money = codec_of(array_of(base("money")))
    assert values(money.natural.convert, None) == [None]
    decimals = codec_of(array_of(base("numeric")), 6 << 16 | 2 + 4).natural
    assert bad_places(decimals.convert, "{1.10,NaN}", "{1.10}") == [0]


def test_event_schema_items() -> None:
    items = event_of(array_of(base("numeric")), (6 << 16 | 2) + 4).schema.items
    assert items is not None and items.optional
    assert dict(items.parameters) == {"scale": "2", "connect.decimal.precision": "6"}
    moods = event_of(array_of(enum("sad", "ok"))).schema
    assert moods.to_dict() == {
        "type": "array",
        "items": {
            "type": "string",
            "optional": False,
            "name": "io.debezium.data.Enum",
            "version": 1,
            "parameters": {"allowed": "sad,ok"},
        },
        "optional": True,
    }


@pytest.mark.parametrize("name", ["money", "name", "interval", "varbit", "xml", "point", "refcursor"])
def test_left_out_of_events_even_with_unknown_types(name: str) -> None:
    assert codec_of(array_of(base(name)), include_unknown_datatypes=True).event is None
    assert isinstance(codec_of(array_of(base(name))).natural.arrow_type, pa.ListType)


def test_null_elements_where_the_schema_forbids_them() -> None:
    assert bad_places(event_of(array_of(enum("a"))).convert, "{a,NULL}", "{a}", None) == [0]
    assert bad_places(event_of(array_of(base("tsvector"))).convert, "{NULL}", "{}") == [0]
    assert bad_places(event_of(array_of(from_extension("ltree"))).convert, "{A.B}", "{A.B,NULL}") == [1]
    assert values(event_of(array_of(base("uuid"))).convert, "{NULL}") == [[None]]


def test_more_dimensions_in_events() -> None:
    assert values(event_of(array_of(base("int4"))).convert, "{{1,2},{3,4},{5,6}}", "{7}") == [[None] * 3, [7]]
    assert values(event_of(array_of(base("bool"))).convert, "{t}", "{{t}}") == [[True], [None]]
    assert bad_places(event_of(array_of(base("text"))).convert, "{{a}}", "{a}") == [0]
    assert bad_places(event_of(array_of(enum("a"))).convert, "{a}", "{{a}}") == [1]


def test_elements_as_the_driver_reads_them() -> None:
    times = event_of(array_of(base("time")), time_precision_mode=TimePrecisionMode.MICROSECONDS)
    assert values(times.convert, "{00:00:01.234567,24:00:00}") == [[1_234_000, 0]]
    zoned = event_of(array_of(base("timetz")))
    assert values(zoned.convert, "{11:51:30.123+00}") == [["11:51:30Z"]]
    assert bad_places(event_of(array_of(base("numeric"))).convert, "{1,NaN}", "{1}", "{Infinity}") == [0, 2]


def test_moments_before_the_gregorian_calendar() -> None:
    moments = event_of(array_of(base("timestamp")))
    day = 86_400_000_000
    read = values(moments.convert, '{"0044-03-15 12:00:00 BC","1582-10-15 00:00:00",NULL,"1582-10-04 00:00:00"}')[0]
    # Two days lie between the calendars at Caesar's death, ten at the reform.
    assert read == [-63517780800000000 - 2 * day, -12219292800000000, None, -12219292800000000 - day]
    nanos = event_of(array_of(base("timestamp")), time_precision_mode=TimePrecisionMode.NANOSECONDS)
    assert values(nanos.convert, '{"0044-03-15 12:00:00 BC",infinity}') == [[None, 2**63 - 1]]
    zoned = event_of(array_of(base("timestamptz")))
    assert values(zoned.convert, '{"0044-03-15 12:00:00+00 BC",infinity,-infinity}') == [
        ["0044-03-15T12:00:00.000000Z", "infinity", "+292269055-12-02T23:00:00.000000Z"]
    ]
    gap = [f"1582-10-{day:02} 09:28:43.999999+00" for day in (4, 5, 9, 10, 14, 15)]
    text = "{" + ",".join(f'"{one}"' for one in [*gap, "1582-10-14 09:28:43.999999+00 BC"]) + "}"
    days = ["04", "15", "19", "20", "24", "15", "14"]
    assert values(zoned.convert, text) == [[f"1582-10-{day}T09:28:43.999999Z" for day in days]]
    for mode in TimePrecisionMode:
        assert (
            values(event_of(array_of(base("timestamptz")), time_precision_mode=mode).convert, text)[0][4][8:10] == "24"
        )
    # Elements without a zone are Julian before the reform, so each day of the gap is ten days later, too.
    assert values(moments.convert, '{"1582-10-05 00:00:00","1582-10-14 00:00:00"}') == [
        [-12219292800000000, -12219292800000000 + 9 * day]
    ]
    dates = event_of(array_of(base("date")))
    assert values(dates.convert, "{1582-10-04,1582-10-05,1582-10-14,1582-10-15}") == [
        [-141438, -141427, -141418, -141427]
    ]
    read = values(dates.convert, '{2020-01-01,infinity,"0044-03-15 BC",-infinity}')
    assert read == [[18262, -622191234, -703383, -625821272]]


def test_catalogue_vectors_are_always_empty_in_events() -> None:
    vector = PgType(22, "int2vector", "pg_catalog", TypeKind.ARRAY, base("int2"))
    assert values(event_of(vector).convert, "1 2", None) == [[], None]
    assert event_of(vector).schema.items == ConnectSchema("int16")
    assert values(codec_of(vector).natural.convert, "1 2", None) == ["1 2", None]


def test_bit_arrays_fit_no_schema() -> None:
    event = event_of(array_of(base("bit")), 1)
    assert event.schema.type == "boolean"
    assert bad_places(event.convert, "{1}", None) == [0]


def test_arrays_of_domains_are_opaque() -> None:
    moods = array_of(domain(base("int4")))
    assert codec_of(moods).event is None
    assert values(codec_of(moods).natural.convert, "{1,2}") == [[1, 2]]
    event = event_of(moods, include_unknown_datatypes=True)
    assert values(event.convert, "{1,2}") == [[b"1", b"2"]]


def test_placeholders() -> None:
    text = "__debezium_unavailable_value"
    for name in ("text", "varchar", "bpchar", "json", "jsonb"):
        assert event_of(array_of(base(name))).unavailable == [text]
    for name in ("int4", "int8", "date"):
        assert event_of(array_of(base(name))).unavailable == list(text.encode())
    assert event_of(array_of(base("uuid"))).unavailable == ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
    assert event_of(array_of(base("bytea"))).unavailable == [text.encode()]
    assert event_of(array_of(base("bytea")), binary_handling_mode=BinaryHandlingMode.HEX).unavailable is None
    for mode in (TimePrecisionMode.CONNECT, TimePrecisionMode.ISOSTRING):
        assert event_of(array_of(base("date")), time_precision_mode=mode).unavailable is None
    for element in (base("int2"), base("numeric"), base("timestamp"), from_extension("hstore"), enum("a")):
        assert event_of(array_of(element)).unavailable is None
    assert event_of(domain(array_of(base("text")))).unavailable is None
    assert event_of(array_of(base("int4"))).fallback == []


def test_common_arrays_stay_in_vectors() -> None:
    texts = pa.array(['{1,22,NULL,"x y"}'] * 10_000)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        split_arrays(texts)
    finally:
        sys.setprofile(None)
    assert 0 < len(calls) < 1000, "nothing is called for each value"
