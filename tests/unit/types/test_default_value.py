"""Default expressions, as pg_get_expr prints them, read as Debezium reads them."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_core.schema.pg_type import PgType
from cdc_core.types.options import DecimalHandlingMode, IntervalHandlingMode, TimePrecisionMode
from tests.unit.types.converters import array_of, base, domain, enum, event_of, from_extension

NUMERIC_6_2 = (6 << 16 | 2) + 4
MOOD = enum("sad", "ok", "it's")


@pytest.mark.parametrize(
    ("pg_type", "modifier", "expression", "expected"),
    [
        (base("int4"), -1, "nextval('inventory.customers_id_seq'::regclass)", 0),
        (base("bool"), -1, "true", True),
        (base("bool"), -1, "false", False),
        (base("bool"), -1, "(1 > 0)", False),
        (base("bool"), -1, "NULL::boolean", None),
        (base("int4"), -1, "42", 42),
        (base("int4"), -1, "'-1'::integer", -1),
        (base("int4"), -1, "(-1)", None),
        (base("int4"), -1, "(1 + 2)", None),
        (base("int4"), -1, "NULL::integer", None),
        (base("int2"), -1, "'32767'::smallint", 32767),
        (base("int2"), -1, "40000", None),
        (base("int8"), -1, "'9223372036854775807'::bigint", 9223372036854775807),
        (base("float8"), -1, "2.5", 2.5),
        (base("float8"), -1, "'-1.5'::numeric", -1.5),
        (base("float8"), -1, "random()", 0.0),
        (base("text"), -1, "'x''y'::text", "x'y"),
        (base("text"), -1, "''::text", ""),
        (base("text"), -1, "NULL::text", None),
        (base("text"), -1, "upper('x'::text)", ""),
        (base("text"), -1, "CURRENT_USER", "CURRENT_USER"),
        (base("text"), -1, "((first || ' '::text) || last)", " "),
        (base("text"), -1, "'now()'::text", "now()"),
        (base("varchar"), 14, "'abc'::character varying", "abc"),
        (base("bpchar"), 9, "'ab'::bpchar", "ab"),
        (base("jsonb"), -1, "'{\"a\": 1}'::jsonb", '{"a": 1}'),
        (base("jsonb"), -1, "jsonb_build_object()", "{}"),
        (base("xml"), -1, "'<a/>'::xml", "<a/>"),
        (base("uuid"), -1, "gen_random_uuid()", "00000000-0000-0000-0000-000000000000"),
        (base("date"), -1, "'2020-02-29'::date", 18321),
        (base("date"), -1, "CURRENT_DATE", 0),
        (base("date"), -1, "('now'::text)::date", None),
        (base("time"), -1, "'10:11:12'::time without time zone", 36672000000),
        (base("time"), -1, "LOCALTIME", 0),
        (base("time"), -1, "'24:00:00'::time without time zone", 86399999999),
        (base("date"), -1, "'infinity'::date", 169560311),
        (base("timestamp"), -1, "'infinity'::timestamp without time zone", -9223372036853775810),
        (base("timestamptz"), -1, "'-infinity'::timestamp with time zone", None),
        (base("text"), -1, "'infinity'::text", "infinity"),
        (base("timestamp"), -1, "'2020-01-02 03:04:05.678901'::timestamp without time zone", 1577934245678901),
        (base("timestamp"), -1, "(now() AT TIME ZONE 'utc'::text)", 0),
        (base("timestamptz"), -1, "'2020-01-02 01:04:05+00'::timestamp with time zone", "2020-01-02T01:04:05.000000Z"),
        (base("timestamptz"), -1, "pg_catalog.now()", "1970-01-01T00:00:00.000000Z"),
        (base("interval"), -1, "'1 day'::interval", 86400000000),
        (base("interval"), -1, "make_interval(days => 1)", 0),
        (base("bit"), 1, "'1'::\"bit\"", True),
        (base("bit"), 5, "'10110'::\"bit\"", b"\x16"),
        (base("bit"), 5, "'0'::\"bit\"", b"\x00"),
        (base("varbit"), 10, "'1011'::\"bit\"", b"\x0b"),
        (MOOD, -1, "'ok'::inventory.mood", "ok"),
        (MOOD, -1, "'ok'::mood", "ok"),
        (MOOD, -1, "'it''s'::inventory.mood", "it''s"),
        (MOOD, -1, "'ok'::other.mood", None),
        (MOOD, -1, "('o'::text || 'k'::text)::inventory.mood", None),
        (enum("A", name="My Enum"), -1, "'A'::inventory.\"My Enum\"", "A"),
        (base("bytea"), -1, "'\\x00'::bytea", None),
        (base("money"), -1, "1", None),
        (base("oid"), -1, "1", None),
        (from_extension("citext"), -1, "'a'::citext", None),
        (array_of(base("int4")), -1, "'{}'::integer[]", None),
        (domain(base("text")), -1, "'a'::text", None),
        (domain(MOOD), -1, "'ok'::inventory.mood", None),
    ],
)
def test_defaults(pg_type: PgType, modifier: int, expression: str, expected: Any) -> None:
    assert event_of(pg_type, modifier).default_value(expression) == expected


@pytest.mark.parametrize(
    ("mode", "modifier", "expression", "expected"),
    [
        (DecimalHandlingMode.PRECISE, NUMERIC_6_2, "1.25", b"\x7d"),
        (DecimalHandlingMode.PRECISE, NUMERIC_6_2, "'-1.5'::numeric", b"\xff\x6a"),
        (DecimalHandlingMode.PRECISE, NUMERIC_6_2, "1.255", None),
        (DecimalHandlingMode.PRECISE, NUMERIC_6_2, "1.2500", b"\x7d"),
        (DecimalHandlingMode.PRECISE, NUMERIC_6_2, "'NaN'::numeric", None),
        (DecimalHandlingMode.PRECISE, NUMERIC_6_2, "random()", b"\x00"),
        (DecimalHandlingMode.PRECISE, -1, "1.25", None),
        (DecimalHandlingMode.STRING, -1, "1.250", "1.250"),
        (DecimalHandlingMode.STRING, NUMERIC_6_2, "1.5", "1.50"),
        (DecimalHandlingMode.DOUBLE, NUMERIC_6_2, "1.5", 1.5),
        (DecimalHandlingMode.STRING, NUMERIC_6_2, "NULL::numeric", None),
    ],
)
def test_numeric_defaults(mode: DecimalHandlingMode, modifier: int, expression: str, expected: Any) -> None:
    event = event_of(base("numeric"), modifier, decimal_handling_mode=mode)
    assert event.default_value(expression) == expected


def test_modes_change_temporal_defaults() -> None:
    iso: dict[str, Any] = {"time_precision_mode": TimePrecisionMode.ISOSTRING}
    assert event_of(base("date"), **iso).default_value("'2020-02-29'::date") == "2020-02-29Z"
    assert event_of(base("time"), **iso).default_value("'10:11:12'::time without time zone") == "10:11:12Z"
    moment = "'2020-01-02 03:04:05.678901'::timestamp without time zone"
    assert event_of(base("timestamp"), **iso).default_value(moment) == "2020-01-02T03:04:05.678901Z"
    text = event_of(base("interval"), interval_handling_mode=IntervalHandlingMode.STRING)
    assert text.default_value("'1 day'::interval") == "P0Y0M1DT0H0M0S"
