"""The laws of cdc_core/types/codec.py, for every registered type on every face and in every mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.micro import bench_types
from cdc_core.schema.connect import ConnectSchema
from cdc_core.schema.table import Column
from cdc_core.types._slow_path import reset_slow_rows, slow_rows
from cdc_core.types.codec import Convert
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import RULES, resolve
from tests.unit.types.cases import ALL, CASES, drawn
from tests.unit.types.modes import MODES
from tests.unit.types.samples import SAMPLES, Sample

GARBAGE = ("gibberish", "12x", "", "\x01", "-", "9" * 25, "2020-13-40", "2020-13-40 25:61:61")


def faces(sample: Sample, options: TypeOptions) -> Iterator[tuple[pa.DataType, Convert]]:
    codec = resolve(Column("c", sample.type, sample.modifier), options)
    yield codec.natural.arrow_type, codec.natural.convert
    if codec.event is not None:
        yield codec.event.arrow_type, codec.event.convert
        if codec.event.snapshot_convert is not None:
            yield codec.event.arrow_type, codec.event.snapshot_convert


def run(convert: Convert, text: pa.Array) -> tuple[list[Any], list[bool]]:
    """Values and bad marks; NaN as its name, for it equals nothing."""
    converted = convert(text)
    bad = [False] * len(text) if converted.bad is None else converted.bad.to_pylist()
    assert len(converted.values) == len(text) == len(bad)
    assert all(mark is not None for mark in bad), "bad is never null"
    return [repr(value) if value is not None else None for value in converted.values.to_pylist()], bad


@pytest.mark.parametrize("name", SAMPLES)
def test_laws(name: str) -> None:
    sample = SAMPLES[name]
    texts: list[str | None] = [None, *sample.common, *sample.rare, None, *sample.common]
    whole = pa.array(texts, pa.string())
    order = np.random.default_rng(7).permutation(len(texts))
    half = len(texts) // 2
    for options in MODES:
        for arrow_type, convert in faces(sample, options):
            assert convert(whole).values.type == arrow_type
            values, bad = run(convert, whole)
            for text, value, mark in zip(texts, values, bad, strict=True):
                if text is None:
                    assert value is None and not mark
                else:
                    assert (value is None) == mark, f"{text!r} is neither held nor marked"
            assert run(convert, whole.take(pa.array(order))) == ([values[i] for i in order], [bad[i] for i in order])
            first, second = run(convert, whole.slice(0, half)), run(convert, whole.slice(half))
            assert (first[0] + second[0], first[1] + second[1]) == (values, bad)
            assert convert(whole.slice(0, 0)).values.type == arrow_type
            assert convert(pa.array([], pa.string())).values.type == arrow_type
            assert run(convert, pa.array([None, None], pa.string())) == ([None, None], [False, False])


@pytest.mark.parametrize("name", SAMPLES)
def test_common_values_are_held_and_never_slow(name: str) -> None:
    sample = SAMPLES[name]
    reset_slow_rows()
    text = pa.array([*sample.common, None], pa.string())
    for options in MODES[:1]:
        for _, convert in faces(sample, options):
            converted = convert(text)
            assert converted.bad is None or not any(converted.bad.to_pylist())
    if sample.scalar:
        assert slow_rows() == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_garbage_is_marked_not_raised(name: str) -> None:
    sample = SAMPLES[name]
    good = sample.common[0]
    for _, convert in faces(sample, MODES[0]):
        for garbage in GARBAGE:
            values, bad = run(convert, pa.array([good, garbage, good], pa.string()))
            assert values[0] == values[2] is not None and bad[0] is bad[2] is False, repr(garbage)
            assert (values[1] is None) == bad[1], repr(garbage)


@pytest.mark.parametrize("name", SAMPLES)
def test_schema_mirrors_the_arrow_type(name: str) -> None:
    sample = SAMPLES[name]
    for options in MODES:
        event = resolve(Column("c", sample.type, sample.modifier), options).event
        if event is None:
            continue
        assert event.schema.optional
        _mirror(event.schema, event.arrow_type)
        for constant in (event.fallback, event.unavailable):
            if constant is not None:
                assert pa.array([constant], event.arrow_type)[0].as_py() is not None


_MIRROR = {
    "boolean": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}


def _mirror(schema: ConnectSchema, arrow_type: pa.DataType) -> None:
    if schema.type == "struct":
        assert [name for name, _ in schema.fields] == [field.name for field in arrow_type]
        for (_, inner), field in zip(schema.fields, arrow_type, strict=True):
            _mirror(inner, field.type)
    elif schema.type == "array":
        assert schema.items is not None
        _mirror(schema.items, arrow_type.value_type)
    elif schema.type == "map":
        assert schema.items is not None and schema.keys is not None
        _mirror(schema.keys, arrow_type.key_type)
        _mirror(schema.items, arrow_type.item_type)
    else:
        assert arrow_type == _MIRROR[schema.type]


def test_every_registered_type_has_a_sample_and_a_benchmark() -> None:
    registered = {name for rule in RULES for name in (rule.names or (rule.label,))}
    assert registered - SAMPLES.keys() == set()
    assert SAMPLES.keys() - set(bench_types.ENTRIES) == set()


def test_every_sample_has_a_strategy_in_copy_and_stream() -> None:
    """``CASES`` is what the tests of both roads draw from, compare with the server and read back from the lake."""
    assert SAMPLES.keys() == CASES.keys()
    for name, case in ALL.items():
        assert len(set(drawn(case, 8, 1))) > 1, f"{name} draws nothing but nulls"


def test_the_rule_of_a_sample_is_that_of_its_name() -> None:
    for key, sample in SAMPLES.items():
        rule = next(rule for rule in RULES if rule.claims(sample.type))
        assert key.partition("(")[0] in (rule.names or (rule.label,))
