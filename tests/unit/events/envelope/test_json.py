"""Typed arrays become the text that Connect's JSON converter writes."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.events.envelope.json import join, json_of, to_json
from cdc_core.events.envelope.uniform import is_uniform
from cdc_core.schema.connect import ConnectSchema

STRING = ConnectSchema("string", optional=True)
INT = ConnectSchema("int32", optional=True)
BYTES = ConnectSchema("bytes", optional=True)
DOUBLE = ConnectSchema("double", optional=True)


def parsed(array: pa.Array, schema: ConnectSchema) -> list[Any]:
    return [json.loads(text) for text in to_json(array, schema).to_pylist()]


@given(st.lists(st.none() | st.text()))
def test_any_text_reads_back(values: list[str | None]) -> None:
    safe = [v if v is None else v.encode("utf-8", "ignore").decode() for v in values]
    assert parsed(pa.array(safe, type=pa.string()), STRING) == safe


def test_control_characters_are_escaped_as_jackson_does() -> None:
    text = to_json(pa.array(['q"\\/\b\t\n\f\r\x01\x1f\x7fé']), STRING)[0].as_py()
    assert text == r'"q\"\\/\b\t\n\f\r\u0001\u001F' + '\x7fé"'


@given(st.lists(st.none() | st.binary(max_size=20)), st.integers(0, 3))
def test_bytes_are_base64(values: list[bytes | None], skip: int) -> None:
    array = pa.array(values, type=pa.binary())[skip:]
    wanted = [None if v is None else base64.b64encode(v).decode() for v in values[skip:]]
    assert parsed(array, BYTES) == wanted


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@given(values=st.lists(st.none() | st.floats(width=32)))
def test_floats_are_numbers_and_the_special_ones_names(kind: pa.DataType, values: list[float | None]) -> None:
    array = pa.array(values, type=kind)
    for value, text in zip(array.to_pylist(), to_json(array, DOUBLE).to_pylist(), strict=True):
        found = json.loads(text)
        if value is None:
            assert found is None
        elif math.isfinite(value):
            assert isinstance(found, float)
            assert pa.scalar(found, kind).as_py() == value
        else:
            assert found == ("NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")


def test_structs_lists_and_maps_nest_and_survive_slicing() -> None:
    inner = ConnectSchema("struct", optional=True, fields=(("x", DOUBLE), ("s", STRING)))
    schema = ConnectSchema("array", optional=True, items=inner)
    kind = pa.list_(pa.struct([("x", pa.float64()), ("s", pa.string())]))
    values = [[{"x": 1.0, "s": "a"}], None, [], [None, {"x": None, "s": '"'}], [{"x": 2.5, "s": None}]]
    array = pa.array(values, type=kind)
    assert parsed(array, schema) == values
    assert parsed(array[1:4], schema) == values[1:4]


def test_a_map_with_string_keys_is_an_object() -> None:
    schema = ConnectSchema("map", optional=True, keys=ConnectSchema("string"), items=STRING)
    array = pa.array([[("a", "1"), ("b", None)], None, [], [("z", "2")]], type=pa.map_(pa.string(), pa.string()))
    assert parsed(array[1:], schema) == [None, {}, {"z": "2"}]
    assert parsed(array, schema)[0] == {"a": "1", "b": None}


def test_a_map_with_other_keys_is_a_list_of_pairs() -> None:
    schema = ConnectSchema("map", keys=ConnectSchema("int16"), items=DOUBLE)
    array = pa.array([[(1, 0.5), (2, 1.5)], []], type=pa.map_(pa.int16(), pa.float64()))
    assert parsed(array, schema) == [[[1, 0.5], [2, 1.5]], []]


def test_nulls_show_the_schemas_default() -> None:
    array = pa.array([1, None], type=pa.int32())
    assert to_json(array, INT.replace(default=42, has_default=True)).to_pylist() == ["1", "42"]
    assert to_json(array, INT.replace(default=None, has_default=True)).to_pylist() == ["1", "null"]


KINDS = {
    "string": (pa.large_string(), st.sampled_from(["", "a", "b", 'q"', "é"])),
    "int64": (pa.int64(), st.integers(-1, 1)),
    "boolean": (pa.bool_(), st.booleans()),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, 2.0, math.nan, math.inf])),
    "bytes": (pa.large_binary(), st.sampled_from([b"", b"a", b"ab"])),
}


@given(st.data(), st.integers(0, 2))
def test_a_value_is_written_the_same_in_any_column(data: st.DataObject, skip: int) -> None:
    """Columns of one value are written once; so are the fields of a struct."""
    fields = {name: st.none() | values for name, (_, values) in KINDS.items()}
    row = data.draw(st.fixed_dictionaries(fields))
    others = st.fixed_dictionaries({name: st.just(row[name]) | values for name, values in fields.items()})
    rows = [data.draw(st.none() | others) for _ in range(data.draw(st.integers(0, 4)))]
    schema = ConnectSchema(
        "struct", optional=True, fields=tuple((name, ConnectSchema(name, optional=True)) for name in KINDS)
    )
    array = pa.array([row] * skip + rows, type=pa.struct([(name, kind) for name, (kind, _) in KINDS.items()]))[skip:]
    alone = [to_json(array.slice(at, 1), schema)[0].as_py() for at in range(len(array))]
    assert to_json(array, schema).to_pylist() == alone
    for (name, field), column in zip(schema.fields, array.flatten() if len(array) else [], strict=False):
        assert is_uniform(column) == (len(column) > 1 and len(set(to_json(column, field).to_pylist())) == 1), name


def test_one_value_of_any_type() -> None:
    assert json_of(b"ab", pa.binary(), BYTES) == '"YWI="'
    assert json_of(["é"], pa.list_(pa.string()), ConnectSchema("array", items=STRING)) == '["é"]'


def test_joined_constants_alone_fill_every_row() -> None:
    assert join(["a", "b"], 3).to_pylist() == ["ab"] * 3
    assert join(["a", "b"], 0).to_pylist() == []
