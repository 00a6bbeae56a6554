"""Scalar types with PostgreSQL as the oracle: it makes the value, prints it, and says what the text means.

Each test draws numbers, lets the server turn them into values, and compares both faces with what the server's own
functions (extract, encode, float8send, to_char, casts to numeric) say about the same value.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.types.codec import Convert
from cdc_core.types.options import (
    BinaryHandlingMode,
    DecimalHandlingMode,
    IntervalHandlingMode,
    TimePrecisionMode,
)
from tests.support.cluster import Cluster
from tests.unit.types.converters import base, codec_of, event_of
from tests.unit.types.samples import numeric

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[Any, ...]

# A budget of examples, each a batch of values in one query: the whole file stays within seconds.
settings.register_profile("oracle", max_examples=12, deadline=None, print_blob=True)
ORACLE = settings.get_profile("oracle")
DAY = 86_400_000_000
WIDE = Context(prec=200)
LAKE = (-719_162, 2_932_896)  # days of 0001-01-01 and 9999-12-31


@pytest.fixture(scope="module")
def server(pg: Cluster) -> Iterator[Connection]:
    """A session set as the project sets its own."""
    with pg.connect(pg.database("scalars")) as connection:
        connection.execute("set timezone = 'UTC'; set extra_float_digits = 3; set lc_monetary = 'C'")
        yield connection


def ask(connection: Connection, value: str, meaning: str, drawn: list[Any]) -> list[Row]:
    """(text, meaning…) of the value that the SQL expression makes of each drawn tuple (d.a, d.b, d.c)."""
    rows = ", ".join("(" + ", ".join(["%s"] * len(drawn[0])) + ")" for _ in drawn)
    names = ", ".join("abc"[: len(drawn[0])])
    sql = f"select v::text, {meaning} from (values {rows}) as d ({names}), lateral (select {value} as v) as made"
    return connection.execute(sql, [item for row in drawn for item in row]).fetchall()


def held(convert: Convert, texts: list[str]) -> list[Any]:
    """Converted values, None where bad."""
    return list(convert(pa.array(texts, pa.string())).values.to_pylist())


def batches(*items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Lists of tuples, one query each."""
    return st.lists(st.tuples(*items), min_size=1, max_size=40)


days = st.integers(-2_440_550, 2_134_074_000) | st.integers(*LAKE) | st.integers(-141_500, -141_400)
micros = st.integers(0, DAY - 1) | st.integers(0, 86_399).map(lambda second: second * 1_000_000)


@pytest.mark.parametrize(("name", "bits"), [("int2", 16), ("int4", 32), ("int8", 64)])
def test_integers(server: Connection, name: str, bits: int) -> None:
    codec = codec_of(base(name))

    @ORACLE
    @given(batches(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)))
    def check(drawn: list[Row]) -> None:
        texts = [text for text, _ in ask(server, f"a::{name}", "1", drawn)]
        assert held(codec.natural.convert, texts) == [number for (number,) in drawn]

    check()


@pytest.mark.parametrize(("name", "shape"), [("float4", ">f"), ("float8", ">d")])
def test_floats_bit_by_bit(server: Connection, name: str, shape: str) -> None:
    codec = codec_of(base(name))

    @ORACLE
    @given(batches(st.floats(width=32 if name == "float4" else 64)))
    def check(drawn: list[Row]) -> None:
        rows = ask(server, f"a::{name}", f"{name}send(v)", drawn)
        for value, (_, sent) in zip(held(codec.natural.convert, [row[0] for row in rows]), rows, strict=True):
            expected = struct.unpack(shape, sent)[0]
            assert struct.pack(shape, value) == sent or (math.isnan(value) and math.isnan(expected))

    check()


def placed(number: int, scale: int) -> str:
    """number · 10**-scale as text, without any rounding."""
    return f"{number}e{-scale}"


numbers = (
    st.sampled_from(["NaN", "Infinity", "-Infinity", "0", "0.000", "1e40", "1e-30"])
    | st.builds(placed, st.integers(-(10**20), 10**20), st.integers(-3, 20))
    | st.builds(placed, st.integers(-(10**6), 10**6), st.integers(-3, 8))
)


def test_numeric_without_scale(server: Connection) -> None:
    natural = codec_of(base("numeric")).natural
    precise = event_of(base("numeric"))
    written = event_of(base("numeric"), decimal_handling_mode=DecimalHandlingMode.STRING)

    @ORACLE
    @given(batches(numbers))
    def check(drawn: list[Row]) -> None:
        rows = ask(server, "a::numeric", "v", drawn)
        texts = [row[0] for row in rows]
        for text, value, event, plain in zip(
            texts,
            held(natural.convert, texts),
            held(precise.convert, texts),
            held(written.convert, texts),
            strict=True,
        ):
            number = Decimal(text)
            if not number.is_finite():
                assert value is None and event is None
                assert plain == {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY"}.get(text, "NEGATIVE_INFINITY")
                continue
            unscaled = Decimal(int.from_bytes(event["value"], "big", signed=True))
            assert unscaled.scaleb(-event["scale"]) == number
            assert event["scale"] == 0 or unscaled % 10 != 0
            assert plain == text
            if value is not None:
                assert value == number
            else:
                assert number.copy_abs() >= 10**20 or -int(number.normalize(WIDE).as_tuple().exponent) > 18

    check()


@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (18, 0), (38, 10), (60, 30), (6, -3), (3, 6)])
def test_numeric_with_scale(server: Connection, precision: int, scale: int) -> None:
    modifier = numeric(precision, scale)
    natural, event = codec_of(base("numeric"), modifier).natural, event_of(base("numeric"), modifier)

    @ORACLE
    @given(batches(st.integers(-(10**precision) + 1, 10**precision - 1)))
    def check(drawn: list[Row]) -> None:
        scaled = [(placed(number, scale), number) for (number,) in drawn]
        if server.info.server_version < 150_000 and not 0 <= scale <= precision:
            pytest.skip("such scales came with PostgreSQL 15")
        texts = [row[0] for row in ask(server, f"a::numeric({precision},{scale})", "b", scaled)]
        unscaled = [int.from_bytes(value, "big", signed=True) for value in held(event.convert, texts)]
        # Debezium reads a negative scale as 2048 more.
        assert unscaled == [number * 10 ** (2048 if scale < 0 else 0) for (number,) in drawn]
        for text, value in zip(texts, held(natural.convert, texts), strict=True):
            assert value == Decimal(text) if value is not None else precision > 38

    check()


def test_money(server: Connection) -> None:
    codec = codec_of(base("money"))

    @ORACLE
    @given(batches(st.integers(-(2**63), 2**63 - 1) | st.integers(-100_000, 100_000)))
    def check(drawn: list[Row]) -> None:
        made = [(placed(number, 2),) for (number,) in drawn]
        texts = [row[0] for row in ask(server, "a::numeric::money", "1", made)]
        assert held(codec.natural.convert, texts) == [Decimal(text) for (text,) in made]

    check()


def test_dates(server: Connection) -> None:
    natural, event = codec_of(base("date")).natural, event_of(base("date"))
    iso = event_of(base("date"), time_precision_mode=TimePrecisionMode.ISOSTRING)

    @ORACLE
    @given(batches(days))
    def check(drawn: list[Row]) -> None:
        rows = ask(
            server,
            "date '1970-01-01' + a::int",
            "case when v < '10000-01-01' then to_char(v, 'YYYY-MM-DD') end, v - date '1970-01-01'",
            drawn,
        )
        texts = [row[0] for row in rows]
        assert held(event.convert, texts) == [number for (number,) in drawn] == [row[2] for row in rows]
        lake = held(natural.convert, texts)
        for (number,), value, written, (text, shown, _) in zip(
            drawn, lake, held(iso.convert, texts), rows, strict=True
        ):
            assert (value is not None) == (LAKE[0] <= number <= LAKE[1])
            if value is not None:
                assert str(value) == text and written == shown + "Z"

    check()


def test_times(server: Connection) -> None:
    micro, milli = event_of(base("time")), event_of(base("time"), 3)
    iso = event_of(base("time"), time_precision_mode=TimePrecisionMode.ISOSTRING)

    @ORACLE
    @given(batches(micros))
    def check(drawn: list[Row]) -> None:
        rows = ask(server, "time '00:00' + a::bigint * interval '1 microsecond'", "to_char(v, 'HH24:MI:SS.US')", drawn)
        texts = [row[0] for row in rows]
        assert held(micro.convert, texts) == [number for (number,) in drawn]
        assert held(milli.convert, texts) == [number // 1000 for (number,) in drawn]
        assert held(iso.convert, texts) == [row[1].rstrip("0").rstrip(".") + "Z" for row in rows]

    check()


def test_times_with_zone(server: Connection) -> None:
    event = event_of(base("timetz"))

    @ORACLE
    @given(batches(micros | st.just(DAY), st.integers(-57_599, 57_599) | st.integers(-15, 15).map(lambda h: h * 3600)))
    def check(drawn: list[Row]) -> None:
        texts = []
        for number, offset in drawn:
            clock = f"{number // 3_600_000_000:02d}:{number // 60_000_000 % 60:02d}:{number / 1e6 % 60:09.6f}"
            size = abs(offset)
            texts.append(f"{clock}{'-' if offset < 0 else '+'}{size // 3600:02d}:{size // 60 % 60:02d}:{size % 60:02d}")
        utc = "mod((extract(epoch from v) * 1000000)::numeric + 86400000000, 86400000000)::bigint"
        rows = ask(server, "a::timetz", utc, [(text,) for text in texts])
        for value, (_, us) in zip(held(event.convert, [row[0] for row in rows]), rows, strict=True):
            clock = f"{us // 3_600_000_000:02d}:{us // 60_000_000 % 60:02d}:{us // 1_000_000 % 60:02d}"
            assert value == f"{clock}.{us % 1_000_000:06d}".rstrip("0").rstrip(".") + "Z"

    check()


def test_timestamps(server: Connection) -> None:
    natural = codec_of(base("timestamp")).natural
    micro, milli = event_of(base("timestamp")), event_of(base("timestamp"), 3)

    @ORACLE
    @given(batches(days.map(lambda day: min(day, 106_000_000)), micros))
    def check(drawn: list[Row]) -> None:
        value = "timestamp '1970-01-01' + make_interval(days => a::int) + b::bigint * interval '1 microsecond'"
        rows = ask(server, value, "(extract(epoch from v) * 1000000)::bigint", drawn)
        texts = [row[0] for row in rows]
        expected = [row[1] for row in rows]
        assert expected == [day * DAY + us for day, us in drawn]
        assert held(micro.convert, texts) == expected
        assert held(milli.convert, texts) == [us // 1000 for us in expected]
        lake = natural.convert(pa.array(texts, pa.string())).values.cast(pa.int64()).to_pylist()
        assert lake == [us if LAKE[0] * DAY <= us < (LAKE[1] + 1) * DAY else None for us in expected]

    check()


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns", "Asia/Kathmandu", "Europe/Amsterdam", "Pacific/Apia"])
def test_instants_in_any_session_zone(server: Connection, zone: str) -> None:
    natural, event = codec_of(base("timestamptz")).natural, event_of(base("timestamptz"))

    @ORACLE
    @given(batches(days.map(lambda day: min(day, 106_000_000)), micros))
    def check(drawn: list[Row]) -> None:
        server.execute("select set_config('TimeZone', %s, false)", [zone])
        value = (
            "timestamptz 'epoch' + make_interval(secs => a::bigint * 86400.0) + b::bigint * interval '1 microsecond'"
        )
        meaning = """(extract(epoch from v) * 1000000)::bigint, extract(year from v at time zone 'UTC')::int,
            to_char(v at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
        rows = ask(server, value, meaning, drawn)
        texts = [row[0] for row in rows]
        expected = [row[1] for row in rows]
        lake = natural.convert(pa.array(texts, pa.string())).values.cast(pa.int64()).to_pylist()
        assert lake == [us if LAKE[0] * DAY <= us < (LAKE[1] + 1) * DAY else None for us in expected]
        for value_found, (_, _, year, shown) in zip(held(event.convert, texts), rows, strict=True):
            if 1 <= year <= 9999:
                assert value_found == shown
            elif year > 9999:
                assert value_found == "+" + shown
            else:
                assert value_found is not None and value_found.startswith(("-", "0000"))

    try:
        check()
    finally:
        server.execute("set timezone = 'UTC'")


def test_intervals(server: Connection) -> None:
    written = event_of(base("interval"), interval_handling_mode=IntervalHandlingMode.STRING)
    counted = event_of(base("interval"))
    small = st.integers(-400_000, 400_000)

    @ORACLE
    @given(batches(small, small, st.integers(-(10**15), 10**15) | st.integers(-(10**7), 10**7)))
    def check(drawn: list[Row]) -> None:
        value = "make_interval(months => a::int, days => b::int) + c::bigint * interval '1 microsecond'"
        parts = ", ".join(f"extract({part} from v)::bigint" for part in ("year", "month", "day", "hour", "minute"))
        rows = ask(server, value, f"{parts}, extract(microseconds from v)::bigint", drawn)
        texts = [row[0] for row in rows]
        for found, micros_found, (_, year, month, day, hour, minute, us) in zip(
            held(written.convert, texts), held(counted.convert, texts), rows, strict=True
        ):
            whole = int(us / 1_000_000)
            told = Decimal(repr(whole + (us - whole * 1_000_000) / 1e6)).quantize(Decimal("1e-9"), ROUND_DOWN)
            seconds = f"{told:f}".rstrip("0").rstrip(".") if us % 1_000_000 else str(whole)
            assert found == f"P{year}Y{month}M{day}DT{hour}H{minute}M{seconds}S"
            total = (year * 12 + month) * (365.25 / 12) + day
            expected = (((total * 24 + hour) * 60 + minute) * 60 + (whole + (us - whole * 1_000_000) / 1e6)) * 1e6
            assert micros_found == int(expected)

    check()


@pytest.mark.parametrize("mode", list(BinaryHandlingMode))
def test_bytea(server: Connection, mode: BinaryHandlingMode) -> None:
    codec = codec_of(base("bytea"))
    event = event_of(base("bytea"), binary_handling_mode=mode)

    @ORACLE
    @given(batches(st.binary(max_size=80)))
    def check(drawn: list[Row]) -> None:
        rows = ask(server, "a::bytea", "replace(encode(v, 'base64'), E'\\n', ''), encode(v, 'hex')", drawn)
        texts = [row[0] for row in rows]
        octets = [value for (value,) in drawn]
        assert held(codec.natural.convert, texts) == octets
        expected = {
            BinaryHandlingMode.BYTES: octets,
            BinaryHandlingMode.HEX: [row[2] for row in rows],
            BinaryHandlingMode.BASE64: [row[1] for row in rows],
            BinaryHandlingMode.BASE64_URL_SAFE: [row[1].translate({43: "-", 47: "_"}) for row in rows],
        }
        assert held(event.convert, texts) == expected[mode]

    check()


def test_bytea_in_escape_form(server: Connection) -> None:
    codec = codec_of(base("bytea"))

    @ORACLE
    @given(batches(st.binary(max_size=30)))
    def check(drawn: list[Row]) -> None:
        rows = ask(server, "encode(a::bytea, 'escape')", "1", drawn)
        printed = [row[0].replace("\x7f", "\\177") for row in rows]
        assert held(codec.natural.convert, printed) == [value for (value,) in drawn]

    check()


def test_bits(server: Connection) -> None:
    event = event_of(base("varbit"))

    @ORACLE
    @given(batches(st.text("01", max_size=100) | st.text("01", min_size=500, max_size=600)))
    def check(drawn: list[Row]) -> None:
        texts = [row[0] for row in ask(server, "a::varbit", "length(v)", drawn)]
        found = [int.from_bytes(value, "little") for value in held(event.convert, texts)]
        assert found == [int(digits or "0", 2) for (digits,) in drawn]
        assert all(not value or value[-1] for value in held(event.convert, texts))

    check()
