"""hstore: text taken apart, Java's order, both handling modes."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from cdc_core.types._java_map import capacities, string_hashes
from cdc_core.types._json_text import quoted
from cdc_core.types.options import HstoreHandlingMode
from tests.unit.types.converters import array_of, bad_places, codec_of, event_of, from_extension, obeys_laws, values

HSTORE = from_extension("hstore")
TEXTS = [
    '"k 2"=>"v, 2", "key"=>"val"',
    None,
    "",
    '"a"=>NULL',
    r'"a\"b"=>"c\\", "é😀"=>"=>", ""=>""',
    "garbage",
    '"x"',
    '"x"=>"y" "z"',
    '"x',
    '"x"=>"y", \\',
    '"x"=>NULL, "NULL"=>"NULL"',
    '"Nn"=>"N"',
]


def test_laws() -> None:
    for mode in HstoreHandlingMode:
        codec = codec_of(HSTORE, hstore_handling_mode=mode)
        obeys_laws(codec.natural.convert, codec.natural.arrow_type, *TEXTS)
        assert codec.event is not None
        obeys_laws(codec.event.convert, codec.event.arrow_type, *TEXTS)


def test_natural_map_keeps_the_servers_order() -> None:
    natural = codec_of(HSTORE).natural
    assert natural.arrow_type == pa.map_(pa.string(), pa.string())
    assert values(natural.convert, *TEXTS[:5]) == [
        [("k 2", "v, 2"), ("key", "val")],
        None,
        [],
        [("a", None)],
        [('a"b', "c\\"), ("é😀", "=>"), ("", "")],
    ]
    assert bad_places(natural.convert, *TEXTS) == [5, 6, 7, 8, 9]


def test_json_text_in_the_order_of_a_hash_map() -> None:
    event = event_of(HSTORE)
    assert event.schema.name == "io.debezium.data.Json"
    assert values(event.convert, '"key"=>"val", "k 2"=>"v, 2"', "", '"a"=>NULL', None) == [
        '{"k 2":"v, 2","key":"val"}',
        "{}",
        '{"a":null}',
        None,
    ]
    (text,) = values(event.convert, '"é\n\x01"=>"\t\\"\\\\"')
    assert text == '{"é\\n\\u0001":"\\t\\"\\\\"}'
    assert json.loads(text) == {"é\n\x01": '\t"\\'}


def test_map_mode_follows_the_same_order() -> None:
    event = event_of(HSTORE, hstore_handling_mode=HstoreHandlingMode.MAP)
    assert values(event.convert, '"key"=>"val", "k 2"=>NULL') == [[("k 2", None), ("key", "val")]]
    assert event.schema.to_dict()["values"] == {"type": "string", "optional": True}


def test_placeholders_and_fallbacks() -> None:
    text = "__debezium_unavailable_value"
    assert event_of(HSTORE).unavailable == f'{{"{text}":"{text}"}}'
    assert event_of(HSTORE).fallback == "{}"
    mapped = event_of(HSTORE, hstore_handling_mode=HstoreHandlingMode.MAP)
    assert mapped.unavailable == [(text, text)]
    assert mapped.fallback == []


def test_arrays_of_hstore() -> None:
    assert values(event_of(array_of(HSTORE)).convert, '{"\\"a\\"=>\\"1\\"",NULL}') == [['{"a":"1"}', None]]


@pytest.mark.parametrize(
    ("text", "expected"),
    # Facts of java.lang.String.hashCode: 31-adic sums over UTF-16 units, wrapped at 32 bits.
    [("", 0), ("a", 97), ("key", 106079), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", -(2**31)), ("é", 233)],
)
def test_java_hash_codes(text: str, expected: int) -> None:
    assert string_hashes(pa.array(["other", text])).astype("int32")[1] == expected


def test_hash_of_characters_beyond_the_basic_plane_counts_two_units() -> None:
    assert string_hashes(pa.array(["😀"])).astype("int32")[0] == 0xD83D * 31 + 0xDE00


def test_map_grows_past_three_quarters() -> None:
    sizes = pa.array([0, 1, 12, 13, 24, 25, 48, 49]).to_numpy()
    assert capacities(sizes).tolist() == [16, 16, 16, 32, 32, 64, 64, 128]


def test_json_literals() -> None:
    assert quoted(pa.array(['a"\\\n\x1f/é', None, ""])).to_pylist() == ['"a\\"\\\\\\n\\u001F/é"', None, '""']
