"""Server text in, recorded Debezium values out: the rows of types_rows.sql, as the server prints them."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column
from cdc_core.types.options import (
    BinaryHandlingMode,
    DecimalHandlingMode,
    HstoreHandlingMode,
    IntervalHandlingMode,
    TimePrecisionMode,
    TypeOptions,
)
from cdc_core.types.registry import resolve

RECORDINGS = Path(__file__).parents[2] / "golden" / "recorded"

RUNS = {
    "snapshot": TypeOptions(),
    "stream": TypeOptions(),
    "stream_time_micros": TypeOptions(time_precision_mode=TimePrecisionMode.ADAPTIVE_TIME_MICROSECONDS),
    "stream_time_connect": TypeOptions(time_precision_mode=TimePrecisionMode.CONNECT),
    "stream_time_isostring": TypeOptions(time_precision_mode=TimePrecisionMode.ISOSTRING),
    "stream_text_modes": TypeOptions(
        decimal_handling_mode=DecimalHandlingMode.STRING,
        hstore_handling_mode=HstoreHandlingMode.MAP,
        interval_handling_mode=IntervalHandlingMode.STRING,
        binary_handling_mode=BinaryHandlingMode.BASE64,
        include_unknown_datatypes=True,
    ),
}


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


# Column → (type, modifier, its text in the rows with id 1, 3, 4, 5 and, for t_num, 6).
TABLES: dict[str, dict[str, tuple[str, int, list[str | None]]]] = {
    "t_basic": {
        "b": ("bool", -1, ["t", "f", "t", "t"]),
        "bit1": ("bit", 1, ["1", "0", "1", "1"]),
        "bit5": ("bit", 5, ["10110", "00000", "00001", "11111"]),
        "bit12": ("bit", 12, ["101101110001", "000000000001", "100000000000", "111111111111"]),
        "vb": ("varbit", 10, ["1011", "", "1111111111", "10"]),
        "vbu": ("varbit", -1, ["110110110", "0", "1", "10101010101010101"]),
        "i2": ("int2", -1, ["-32768", "0", "1", "5"]),
        "i4": ("int4", -1, ["2147483647", "0", "1", "5"]),
        "i8": ("int8", -1, ["-9223372036854775808", "0", "1", "5"]),
        "o": ("oid", -1, ["4294967295", "0", "1", "5"]),
        "r": ("float4", -1, ["1.5", "NaN", "3.4028235e+38", "-Infinity"]),
        "d": ("float8", -1, ["-2.25", "Infinity", "1e-300", "0.1"]),
        "c": ("bpchar", 9, ["ab   ", "     ", "abcde", "é    "]),
        "vc": ("varchar", 14, ["héllo", "", "0123456789", "ü"]),
        "t": ("text", -1, ['text "q" \\ / 日本', "", "line\nbreak\ttab", "x"]),
        "ba": ("bytea", -1, ["\\x00ff10", "\\x", "\\xdeadbeef", "\\x"]),
        "j": ("json", -1, ['{"a": 1, "b":[true,null]}', "[]", "null", '{"n": 12345678901234567890.123}']),
        "jb": ("jsonb", -1, ['{"a": {"c": 1.50}, "b": 2}', "[]", '"s"', '{"n": 12345678901234567890.123}']),
        "x": ("xml", -1, ["<a><b/></a>", "", "<x/>", "<x/>"]),
        "u": (
            "uuid",
            -1,
            [
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "00000000-0000-0000-0000-000000000000",
                "ffffffff-ffff-ffff-ffff-ffffffffffff",
                "ffffffff-ffff-ffff-ffff-ffffffffffff",
            ],
        ),
        "ct": ("citext", -1, ["CiText", "", "x", "x"]),
    },
    "t_time": {
        "d": ("date", -1, ["2018-06-20", "infinity", "0044-03-15 BC", "9999-12-31"]),
        "t": ("time", -1, ["15:13:16.945104", "00:00:00", "24:00:00", "23:59:59.999999"]),
        "t0": ("time", 0, ["15:13:16", "00:00:00", "24:00:00", "23:59:59"]),
        "t3": ("time", 3, ["15:13:16.945", "00:00:00", "24:00:00", "23:59:59.999"]),
        "t6": ("time", 6, ["15:13:16.945104", "00:00:00", "24:00:00", "23:59:59.999999"]),
        "ttz": ("timetz", -1, ["15:13:16.945104+02", "00:00:00+00", "24:00:00+00", "23:59:59.999999-12"]),
        "ts": (
            "timestamp",
            -1,
            ["2018-06-20 15:13:16.945104", "infinity", "0044-03-15 12:00:00 BC", "9999-12-31 23:59:59.999999"],
        ),
        "ts0": ("timestamp", 0, ["2018-06-20 15:13:16", "infinity", "1969-12-31 23:59:59", "2000-01-01 00:00:00"]),
        "ts3": (
            "timestamp",
            3,
            ["2018-06-20 15:13:16.945", "infinity", "1969-12-31 23:59:59.999", "2000-01-01 00:00:00.1"],
        ),
        "ts6": (
            "timestamp",
            6,
            ["2018-06-20 15:13:16.945104", "-infinity", "0001-01-01 00:00:00", "2000-01-01 00:00:00.000001"],
        ),
        "tstz": (
            "timestamptz",
            -1,
            ["2018-06-20 13:13:16.945104+00", "infinity", "0044-03-15 12:00:00+00 BC", "2000-01-01 05:30:00.1+05:30"],
        ),
        "tstz3": (
            "timestamptz",
            3,
            ["2018-06-20 15:13:16.945+02", "-infinity", "1900-01-01 00:19:32+00:19:32", "2000-01-01 00:00:00.12+00"],
        ),
        "iv": (
            "interval",
            -1,
            [
                "1 year 2 mons 3 days 04:05:06.78",
                "-1 days",
                "-1 years -2 mons +3 days -04:05:06.000001",
                "00:00:00",
            ],
        ),
    },
    "t_num": {
        "n": ("numeric", -1, ["123456.789", "NaN", "0", "-0.000001", "1000000000000000000000000000000"]),
        "n10": ("numeric", numeric(10, 0), ["1234567890", None, "0", "-1", "9999999999"]),
        "n52": ("numeric", numeric(5, 2), ["123.45", None, "0.00", "-999.99", "0.01"]),
        "n384": (
            "numeric",
            numeric(38, 4),
            ["1234567890123456789012345678901234.5678", None, "0.0000", "-0.0001", "1.0000"],
        ),
        "dec": ("numeric", numeric(12, 6), ["-1.500000", None, "0.000000", "999999.999999", "0.000001"]),
        "m": ("money", -1, ["$1,234.56", "-$0.01", "$0.00", "$92,233,720,368,547,758.07", "$1.00"]),
    },
}
# Recorded: a precise event has no value for NaN.
UNREADABLE = {("t_num", "n", 1)}
CASES = [(run, table, column) for run in RUNS for table, columns in TABLES.items() for column in columns]


@functools.cache
def recorded(run: str, table: str) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Field schemas of ``after``, and the rows that inserts or the snapshot wrote, by id."""
    schemas: dict[str, Any] = {}
    rows: dict[int, dict[str, Any]] = {}
    for line in gzip.decompress((RECORDINGS / f"{run}.jsonl.gz").read_bytes()).decode().splitlines():
        record = json.loads(line)
        if not record["topic"].endswith(f".{table}") or not record["value"]:
            continue
        value = record["value"] if isinstance(record["value"], dict) else json.loads(record["value"])
        payload = value["payload"]
        if payload["op"] in ("r", "c"):
            after = next(field for field in value["schema"]["fields"] if field["field"] == "after")
            schemas = {field["field"]: field for field in after["fields"]}
            rows[payload["after"]["id"]] = payload["after"]
    return schemas, rows


def as_json(value: Any) -> Any:
    """A value in the form of Connect's JSON converter."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def codec_of(type_name: str, modifier: int, options: TypeOptions) -> Any:
    namespace = "public" if type_name == "citext" else "pg_catalog"
    return resolve(Column("c", PgType(1, type_name, namespace), modifier), options)


@pytest.mark.parametrize(("run", "table", "column"), CASES)
def test_equals_the_recording(run: str, table: str, column: str) -> None:
    type_name, modifier, texts = TABLES[table][column]
    event = codec_of(type_name, modifier, RUNS[run]).event
    schemas, rows = recorded(run, table)
    assert event.schema.to_dict(column) == schemas[column]

    convert = event.snapshot_convert if run == "snapshot" and event.snapshot_convert else event.convert
    converted = convert(pa.array([texts[0], None, *texts[1:]], pa.string()))
    found = [as_json(value) for value in converted.values.to_pylist()]
    expected = [rows[place + 1][column] for place in range(len(found))]
    if event.arrow_type == pa.float32():
        assert [pa.scalar(v, pa.float32()) if isinstance(v, float) else v for v in expected] == [
            pa.scalar(v, pa.float32()) if isinstance(v, float) else v for v in found
        ]
    else:
        assert found == expected
    bad = converted.bad.to_pylist() if converted.bad is not None else [False] * len(found)
    precise = RUNS[run].decimal_handling_mode is DecimalHandlingMode.PRECISE
    assert bad == [precise and (table, column, place - 1) in UNREADABLE for place in range(len(found))]
