"""Every registered type as a column of a real table: how to draw its values, and how the server says what they mean.

Keys are those of ``SAMPLES``. A case's ``values`` are texts that PostgreSQL reads as the type; ``meaning`` is SQL over
the column ``v`` that gives what the lake must hold, null where the lake cannot hold the value (its text is then
rescued). None of it uses wal2lake.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

Texts = st.SearchStrategy[str]

_DAYS = "between date '0001-01-01' and date '9999-12-31'"
_MOMENTS = "between '0001-01-01 00:00:00' and '9999-12-31 23:59:59.999999'"
_INSTANTS = "between '0001-01-01 00:00:00+00' and '9999-12-31 23:59:59.999999+00'"
_FITS = (
    "({v}::text not in ('NaN', 'Infinity', '-Infinity') and abs({v}) < {limit} and scale(trim_scale({v})) <= {scale})"
)


@dataclass(frozen=True)
class Case:
    """One column. ``extension`` must be installable where the case is to run; ``setup`` is SQL that makes the type."""

    sql_type: str
    values: Texts
    meaning: str = "v::text"
    extension: str = ""
    setup: str = ""
    least_version: int = 0
    made_by: str = ""  # a cast on the way from the text to the type


# Everything that COPY, arrays, hstore, composite types and JSON escape, and characters of one to four bytes.
words = st.text(st.sampled_from("ab N\"\\,{}()=>;'\t\n\r\x01\x7fé日😀"), max_size=8) | st.sampled_from(
    ["", "NULL", "\\N"]
)
plain_words = st.text(st.sampled_from("abcXYZ09"), min_size=1, max_size=6)
floats = st.floats(allow_nan=False, width=32).map(repr)


def integers(bits: int) -> Texts:
    """Whole numbers of so many bits, the ends among them."""
    most = 2 ** (bits - 1)
    return st.sampled_from([-most, most - 1, 0]).map(str) | st.integers(-most, most - 1).map(str)


def decimals(digits: int, scale: int) -> Texts:
    """Numbers of up to so many digits at a scale (a negative one too)."""
    numbers = st.integers(0, digits).flatmap(lambda width: st.integers(-(10**width) + 1, 10**width - 1))
    return numbers.map(lambda number: f"{number}e{-scale}")


def _is_in_any_year(day: date) -> bool:
    """Not a leap day: other years before Christ have one."""
    return (day.month, day.day) != (2, 29)


days = (
    st.sampled_from(["infinity", "-infinity", "0001-12-31 BC", "4714-11-24 BC", "12345-06-07", "5874897-12-31"])
    | st.dates().map(str)
    | st.dates(max_value=date(4713, 1, 1)).filter(_is_in_any_year).map(lambda day: f"{day} BC")
)
clocks = st.sampled_from(["24:00:00", "00:00:00", "23:59:59.999999", "01:02:03.1"]) | st.times().map(str)
moments = (
    st.sampled_from(["infinity", "-infinity", "4714-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999"])
    | st.sampled_from(["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1582-10-10 12:00:00", "10000-01-01"])
    | st.datetimes().map(str)
    | st.builds("{} BC".format, st.datetimes(max_value=datetime(4713, 1, 1)).filter(_is_in_any_year))
)
zones = st.integers(-959, 959).map(lambda m: f"{'-' if m < 0 else '+'}{abs(m) // 60:02d}:{abs(m) % 60:02d}")
instants = st.sampled_from(["infinity", "-infinity", "294276-12-31 23:59:59+00", "0001-01-01 00:00:00+05"]) | st.builds(
    "{}{}".format, st.datetimes(), zones
)
months = st.integers(-1_000_000, 1_000_000)
intervals = st.builds("{} months {} days {} microseconds".format, months, months, st.integers(-(10**15), 10**15))
octets = st.binary(max_size=40).map(lambda value: "\\x" + value.hex())
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | words.map(lambda text: text.replace("\x01", "")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain_words, inner, max_size=3),
    max_leaves=6,
).map(json.dumps)
point_texts = st.builds("({},{})".format, floats, floats)
small_points = st.builds("({},{})".format, st.integers(-99, 99), st.integers(-99, 99))


def ranges(bound: st.SearchStrategy[int], show: str = "{}") -> Texts:
    """Ranges of every kind of bound."""
    return st.just("empty") | st.builds(
        lambda low, size, left, right, lower, upper: (
            f"{left}{show.format(low) if lower else ''},{show.format(low + size) if upper else ''}{right}"
        ),
        *(bound, st.integers(0, 9), st.sampled_from("[("), st.sampled_from(")]"), st.booleans(), st.booleans()),
    )


def quoted(text: str) -> str:
    """An element of an array or a field of a composite."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def arrays(element: Texts) -> Texts:
    """Arrays flat, empty, with nulls, of two dimensions, and of lower bounds other than one in either."""
    entry = st.just("NULL") | element.map(quoted)
    flat = st.lists(entry, max_size=5).map(lambda entries: "{" + ",".join(entries) + "}")
    square = st.lists(st.tuples(entry, entry), min_size=1, max_size=3).map(
        lambda rows: "{" + ",".join("{" + ",".join(row) + "}" for row in rows) + "}"
    )
    bounded = st.tuples(st.lists(entry, min_size=1, max_size=3), st.integers(-3, 3)).map(
        lambda drawn: f"[{drawn[1]}:{drawn[1] + len(drawn[0]) - 1}]={{{','.join(drawn[0])}}}"
    )
    low = st.integers(-3, 3)
    both = st.builds(
        lambda row, outer, inner: f"[{outer}:{outer}][{inner}:{inner + 1}]={{{{{','.join(row)}}}}}",
        *(st.tuples(entry, entry), low, low),
    )
    return flat | bounded | square | both


def _array(sql_type: str, element: Texts, fits: str = "true", show: str = "v[n]", extension: str = "") -> Case:
    each = "from generate_subscripts(v, 1) as n"
    meaning = (
        "case when v is not null and coalesce(array_ndims(v), 1) = 1 and coalesce(array_lower(v, 1), 1) = 1"
        f" and not exists (select {each} where not {fits})"
        f" then coalesce((select json_agg({show} order by n) {each}), '[]') end"
    )
    return Case(f"{sql_type}[]", arrays(element), meaning, extension)


def _numeric(limit: str, scale: int) -> str:
    return f"case when {_FITS.format(v='v', limit=limit, scale=scale)} then v end"


_specials = st.sampled_from(
    ["NaN", "Infinity", "-Infinity", "1" + 60 * "0", "0." + 30 * "1", "1" * 20 + "." + "1" * 19]
)
_ENUM = "create type mood as enum ('sad', 'o k', 'it''s \"fine\"')"
_POINTS = st.builds(
    "{}POINT({} {})".format, st.sampled_from(["", "SRID=4326;", "SRID=3857;"]), *[st.floats(-1e6, 1e6).map(repr)] * 2
)
_REAL_LIST = st.lists(st.floats(-1000, 1000, width=16), min_size=1, max_size=5).map(json.dumps)

CASES: dict[str, Case] = {
    "bool": Case("bool", st.sampled_from(["true", "false"]), "v"),
    "int2": Case("int2", integers(16), "v"),
    "int4": Case("int4", integers(32), "v"),
    "int8": Case("int8", integers(64), "v"),
    "oid": Case("oid", st.integers(0, 2**32 - 1).map(str), "v::int8"),
    "float4": Case("float4", st.floats(width=32).map(repr), "v::float8"),
    "float8": Case("float8", st.floats().map(repr), "v"),
    "numeric": Case("numeric", decimals(30, 8) | decimals(20, 18) | decimals(44, 30) | _specials, _numeric("1e20", 18)),
    "numeric(10,2)": Case("numeric(10,2)", decimals(10, 2) | st.just("NaN"), _numeric("1e8", 2)),
    "numeric(38,4)": Case("numeric(38,4)", decimals(38, 4) | st.just("NaN"), _numeric("1e34", 4)),
    "numeric(60,30)": Case("numeric(60,30)", decimals(60, 30) | st.just("NaN"), _numeric("1e8", 30)),
    "numeric(5,-2)": Case("numeric(5,-2)", decimals(5, -2) | st.just("NaN"), _numeric("1e7", 0), least_version=15),
    "numeric(3,5)": Case("numeric(3,5)", decimals(3, 5) | st.just("NaN"), _numeric("1", 5), least_version=15),
    "money": Case("money", decimals(18, 2), "v::numeric", made_by="::numeric"),
    "text": Case("text", words),
    "varchar": Case("varchar(10)", words),
    "bpchar": Case("char(9)", words.map(lambda text: text.rstrip(" ")), "rpad(v::text, 9)"),
    "char": Case('"char"', st.sampled_from("aZ\\ \t\n") | st.just("")),
    "name": Case("name", words),
    "citext": Case("citext", words, extension="citext"),
    "isbn": Case("isbn", st.sampled_from(["978-0-393-04002-9", "978-0-14-200057-1"]), extension="isn"),
    "bytea": Case("bytea", octets, "v"),
    "bit": Case("bit(1)", st.text("01", min_size=1, max_size=1)),
    "bit(12)": Case("bit(12)", st.text("01", min_size=12, max_size=12)),
    "varbit": Case("varbit", st.text("01", max_size=90)),
    "uuid": Case("uuid", st.uuids().map(str)),
    "json": Case("json", documents),
    "jsonb": Case("jsonb", documents),
    "xml": Case("xml", plain_words.map('<a b="1">{}</a>'.format) | st.just("")),
    "date": Case("date", days, f"case when v {_DAYS} then v end"),
    "time": Case("time", clocks),
    "time(3)": Case("time(3)", clocks),
    "timetz": Case("timetz", st.builds("{}{}".format, clocks, zones)),
    "timestamp": Case("timestamp", moments, f"case when v {_MOMENTS} then v end"),
    "timestamp(3)": Case("timestamp(3)", moments, f"case when v {_MOMENTS} then v end"),
    "timestamptz": Case("timestamptz", instants, f"case when v {_INSTANTS} then v end"),
    "timestamptz(0)": Case("timestamptz(0)", instants, f"case when v {_INSTANTS} then v end"),
    "interval": Case("interval", intervals),
    "inet": Case("inet", st.ip_addresses().map(str) | st.just("192.168.1.5/24"), "inet_out(v)::text"),
    "cidr": Case("cidr", st.ip_addresses().map(str) | st.just("10.0.0.0/8")),
    "macaddr": Case("macaddr", st.binary(min_size=6, max_size=6).map(lambda value: value.hex(":"))),
    "macaddr8": Case("macaddr8", st.binary(min_size=8, max_size=8).map(lambda value: value.hex(":"))),
    "int4range": Case("int4range", ranges(st.integers(-(10**6), 10**6))),
    "int8range": Case("int8range", ranges(st.integers(-(10**15), 10**15))),
    "numrange": Case("numrange", ranges(st.integers(-(10**6), 10**6), "{}.50")),
    "tsrange": Case("tsrange", ranges(st.integers(1990, 2090), "{}-02-03 04:05:06.7")),
    "tstzrange": Case("tstzrange", ranges(st.integers(1990, 2090), "{}-02-03 04:05:06+03")),
    "daterange": Case("daterange", ranges(st.integers(1990, 2090), "{}-02-03")),
    "own range": Case(
        "floatrange", ranges(st.integers(-99, 99), "{}.25"), setup="create type floatrange as range (subtype = float8)"
    ),
    "multirange": Case(
        "int4multirange",
        st.lists(ranges(st.integers(-999, 999)), max_size=4).map(lambda some: "{" + ",".join(some) + "}"),
    ),
    "point": Case("point", point_texts, "case when v is not null then json_build_array(v[0]::text, v[1]::text) end"),
    "box": Case("box", st.builds("{},{}".format, small_points, small_points)),
    "lseg": Case("lseg", st.builds("[{},{}]".format, small_points, small_points)),
    "path": Case("path", st.lists(small_points, min_size=1, max_size=4).map(lambda some: f"[{','.join(some)}]")),
    "polygon": Case("polygon", st.lists(small_points, min_size=1, max_size=4).map(lambda some: f"({','.join(some)})")),
    "line": Case("line", st.integers(-99, 99).map("{{1,-1,{}}}".format)),
    "circle": Case("circle", st.builds("<{},{}>".format, small_points, st.integers(0, 99))),
    "tsvector": Case(
        "tsvector", st.lists(plain_words, max_size=5).map(lambda some: " ".join(f"{w}:1,2B" for w in some))
    ),
    "ltree": Case("ltree", st.lists(plain_words, max_size=4).map(".".join), extension="ltree"),
    "hstore": Case(
        "hstore",
        st.dictionaries(words, st.none() | words, max_size=12).map(
            lambda d: ",".join(f"{quoted(k)}=>{'NULL' if v is None else quoted(v)}" for k, v in d.items())
        ),
        "hstore_to_json(v)",
        extension="hstore",
    ),
    "geometry": Case("geometry", _POINTS, "st_asewkb(v)", extension="postgis"),
    "geography": Case(
        "geography",
        st.builds("POINT({} {})".format, st.integers(-180, 180), st.integers(-90, 90)),
        "st_asewkb(v::geometry)",
        extension="postgis",
    ),
    "vector": Case("vector", _REAL_LIST, "to_json(v::real[])", extension="vector"),
    "halfvec": Case("halfvec", _REAL_LIST, "to_json(v::real[])", extension="vector"),
    "sparsevec": Case(
        "sparsevec", _REAL_LIST.map(lambda some: "{1:" + some[1:].split(",")[0].rstrip("]") + "}/7"), extension="vector"
    ),
    "enum": Case("mood", st.sampled_from(["sad", "o k", 'it\'s "fine"']), setup=_ENUM),
    "domain": Case(
        "dnum",
        decimals(7, 2) | st.just("NaN"),
        _numeric("1e5", 2),
        setup="create domain dnum0 as numeric(7,2); create domain dnum as dnum0",
    ),
    "array": _array("int4", integers(32)),
    "int2vector": Case("int2vector", st.lists(integers(16), max_size=4).map(" ".join)),
    "oidvector": Case("oidvector", st.lists(st.integers(0, 2**32 - 1).map(str), max_size=4).map(" ".join)),
    "composite": Case(
        "pair",
        st.builds(lambda n, text: f"({n},{quoted(text)})", integers(32), words),
        setup="create type pair as (a int, b text)",
    ),
    "unknown": Case("pg_lsn", st.builds("{:X}/{:X}".format, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))),
}

# Arrays of every kind of element besides: what an element cannot hold, the whole array cannot.
ARRAYS: dict[str, Case] = {
    "bool[]": _array("bool", st.sampled_from(["t", "f"])),
    "int8[]": _array("int8", integers(64)),
    "text[]": _array("text", words),
    "varchar[]": _array("varchar(10)", words),
    "uuid[]": _array("uuid", st.uuids().map(str)),
    "bytea[]": _array("bytea", octets, show="encode(v[n], 'hex')"),
    "float8[]": _array("float8", st.floats(allow_nan=False, allow_infinity=False).map(repr)),
    "numeric[]": _array(
        "numeric", decimals(30, 8) | _specials, _FITS.format(v="v[n]", limit="1e20", scale=18), "v[n]::text"
    ),
    "date[]": _array("date", days, f"v[n] {_DAYS}"),
    "timestamp[]": _array("timestamp", moments, f"v[n] {_MOMENTS}"),
    "timestamptz[]": _array("timestamptz", instants, f"v[n] {_INSTANTS}", "v[n] at time zone 'UTC'"),
    "time[]": _array("time", clocks, show="v[n]::text"),
    "interval[]": _array("interval", intervals, show="v[n]::text"),
    "jsonb[]": _array("jsonb", documents, show="v[n]::text"),
    "inet[]": _array("inet", st.ip_addresses().map(str), show="inet_out(v[n])::text"),
    "box[]": Case(
        "box[]",
        st.just("{(1,1),(0,0);(3,3),(2,2)}"),
        """case when v is not null then '["(1,1),(0,0)","(3,3),(2,2)"]'::json end""",
    ),
    "enum[]": _array("mood", st.sampled_from(["sad", "o k", 'it\'s "fine"'])),
    "domain[]": _array("dnum", decimals(7, 2), show="v[n]::text"),
    "composite[]": _array(
        "pair", st.builds(lambda n, text: f"({n},{quoted(text)})", integers(32), words), show="v[n]::text"
    ),
    "hstore[]": _array("hstore", plain_words.map("a=>{}".format), show="hstore_to_json(v[n])", extension="hstore"),
}
ALL = CASES | ARRAYS


@cache
def drawn(case: Case, count: int, number: int) -> list[str | None]:
    """``count`` values of a case, a null first; the same for the same seed. Small types repeat themselves."""
    found: list[str | None] = [None]

    @seed(number)
    @settings(max_examples=count, database=None, phases=[Phase.generate], deadline=None)
    @given(case.values)
    def collect(text: str) -> None:
        found.append(text)

    collect()
    return [found[place % len(found)] for place in range(count)]
