"""Texts of every registered type, as PostgreSQL prints them: what the laws and the benchmark stand on.

``common`` values are the ones a table is full of; ``rare`` ones are values a real server can send all the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.schema.pg_type import PgType, TypeKind


@dataclass(frozen=True)
class Sample:
    """A column type with its texts. ``scalar`` types are held to the benchmark's bound."""

    type: PgType
    common: tuple[str, ...]
    rare: tuple[str, ...] = ()
    modifier: int = -1
    scalar: bool = True


def _base(name: str, *common: str, rare: tuple[str, ...] = (), modifier: int = -1, scalar: bool = True) -> Sample:
    return Sample(PgType(10, name), common, rare, modifier, scalar)


def _extension(name: str, *common: str, scalar: bool = False) -> Sample:
    return Sample(PgType(50_000, name, "public"), common, scalar=scalar)


def numeric(precision: int, scale: int) -> int:
    """atttypmod of numeric(precision, scale)."""
    return (precision << 16 | scale & 0x7FF) + 4


_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
_INT4 = PgType(23, "int4")
_NUMERIC = PgType(1700, "numeric")
_POINT_WKB = "0101000000000000000000F03F0000000000000040"

# Keys are registered type names; a rule that claims a whole kind stands under its label. A suffix tells variants apart.
SAMPLES: dict[str, Sample] = {
    "bool": _base("bool", "t", "f"),
    "int2": _base("int2", "0", "-32768", "32767"),
    "int4": _base("int4", "42", "-2147483648", "2147483647"),
    "int8": _base("int8", "42", "-9223372036854775808", "9223372036854775807"),
    "oid": _base("oid", "0", "4294967295"),
    "float4": _base("float4", "1.5", "-3.4028235e+38", "1e-45", "NaN", "Infinity", "-Infinity"),
    "float8": _base("float8", "1.5", "0.1", "-1.7976931348623157e+308", "NaN", "Infinity", "-Infinity"),
    "numeric": _base(
        "numeric",
        "123456.789",
        "0",
        "-0.0100",
        "100",
        rare=("NaN", "Infinity", "-Infinity", "1" + 40 * "0", "0." + 30 * "1"),
    ),
    "numeric(10,2)": _base("numeric", "123.45", "0.00", "-99999999.99", rare=("NaN",), modifier=numeric(10, 2)),
    "numeric(38,4)": _base("numeric", "1" * 34 + ".5678", "-0.0001", modifier=numeric(38, 4)),
    "numeric(60,30)": _base("numeric", "1." + "1" * 30, rare=("1" * 30 + "." + "1" * 30,), modifier=numeric(60, 30)),
    # Debezium reads such a scale as 2046, so that its events hold integers of 7,000 bits: never fast.
    "numeric(5,-2)": _base("numeric", "12300", "0", "-9999900", modifier=numeric(5, -2), scalar=False),
    "numeric(3,5)": _base("numeric", "0.00123", "-0.00001", "0.00000", modifier=numeric(3, 5)),
    "money": _base(
        "money", "$1,234.56", "-$0.01", "-12.34", rare=("-$92,233,720,368,547,758.08", "￥1,234", "($5.00)")
    ),
    "text": _base("text", "", "plain", 'quo"te \\ 日本', "line\nbreak"),
    "varchar": _base("varchar", "abc", "", modifier=14),
    "bpchar": _base("bpchar", "ab   ", "     ", modifier=9),
    "char": _base("char", "a", ""),
    "name": _base("name", "pg_class"),
    "citext": _extension("citext", "CiText", "", scalar=True),
    "isbn": _extension("isbn", "978-0-393-04002-9", scalar=True),
    "bytea": _base("bytea", "\\x00ff10", "\\x", "\\xdeadbeefcafe", rare=("abc\\\\d\\377",)),
    "bit": _base("bit", "1", "0", modifier=1),
    "bit(12)": _base("bit", "101101110001", "000000000000", modifier=12),
    "varbit": _base("varbit", "1011", "", "0", "1" * 17, rare=("10" * 400,)),
    "uuid": _base("uuid", _UUID, "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "json": _base("json", '{"a": 1, "b":[true,null]}', "[]", "null"),
    "jsonb": _base("jsonb", '{"a": {"c": 1.50}}', '"s"'),
    "xml": _base("xml", "<a><b/></a>", ""),
    "date": _base(
        "date", "2018-06-20", "0001-01-01", "9999-12-31", rare=("infinity", "-infinity", "0044-03-15 BC", "12345-01-01")
    ),
    "time": _base("time", "15:13:16.945104", "00:00:00", "23:59:59.9", rare=("24:00:00",)),
    "time(3)": _base("time", "15:13:16.945", "00:00:00", rare=("24:00:00",), modifier=3),
    "timetz": _base(
        "timetz", "15:13:16.945104+02", "00:00:00-12", "01:02:03+05:30", rare=("24:00:00+00", "10:00:00+01:02:03")
    ),
    "timestamp": _base(
        "timestamp",
        "2018-06-20 15:13:16.945104",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59.999999",
        rare=("infinity", "-infinity", "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59.999999"),
    ),
    "timestamp(3)": _base(
        "timestamp", "2018-06-20 15:13:16.945", "1969-12-31 23:59:59.999", rare=("infinity",), modifier=3
    ),
    "timestamptz": _base(
        "timestamptz",
        "2018-06-20 15:13:16.945104+00",
        "2018-06-20 15:13:16.1+05:30",
        "1999-12-31 23:59:59-08",
        rare=(
            "infinity",
            "-infinity",
            "0044-03-15 12:00:00+00 BC",
            "1883-11-18 12:00:00-07:52:58",
            "9999-12-31 23:59:59.999999-08",
            "0001-01-01 00:00:00+05",
        ),
    ),
    "timestamptz(0)": _base("timestamptz", "2018-06-20 15:13:16+00", modifier=0),
    "interval": _base(
        "interval",
        "1 year 2 mons 3 days 04:05:06.78",
        "-1 days",
        "-1 years -2 mons +3 days -04:05:06.000001",
        "00:00:00",
        rare=("infinity", "2562047788:00:54.775807"),
    ),
    "inet": _base("inet", "192.168.1.5/24", "::1"),
    "cidr": _base("cidr", "10.0.0.0/8", "2001:db8::/32"),
    "macaddr": _base("macaddr", "08:00:2b:01:02:03"),
    "macaddr8": _base("macaddr8", "08:00:2b:01:02:03:04:05"),
    **{
        name: Sample(PgType(3900, name, kind=TypeKind.RANGE, inner=_INT4), (text, "empty"))
        for name, text in {
            "int4range": "[1,10)",
            "int8range": "[5,)",
            "numrange": "(1.5,2.5]",
            "tsrange": '["2010-01-01 14:30:00","2010-01-01 15:30:00")',
            "tstzrange": '["2010-01-01 14:30:00+00",)',
            "daterange": "[2019-03-31,2019-04-05)",
        }.items()
    },
    "own range": Sample(PgType(50_010, "floatrange", "public", TypeKind.RANGE, inner=_INT4), ("[1.5,2)",)),
    "multirange": Sample(
        PgType(4451, "int4multirange", kind=TypeKind.MULTIRANGE, inner=_INT4), ("{[1,3),[5,7)}", "{}")
    ),
    "point": _base("point", "(1.5,-2)", "(NaN,1e+10)", scalar=False),
    "box": _base("box", "(1,1),(0,0)", scalar=False),
    "lseg": _base("lseg", "[(0,0),(1,1)]", scalar=False),
    "path": _base("path", "((0,0),(1,1))", scalar=False),
    "polygon": _base("polygon", "((0,0),(1,1),(1,0))", scalar=False),
    "line": _base("line", "{1,-1,0}", scalar=False),
    "circle": _base("circle", "<(0,0),1>", scalar=False),
    "tsvector": _base("tsvector", "'brown':3 'fox':4", "", scalar=False),
    "ltree": _extension("ltree", "Top.Science", ""),
    "hstore": _extension("hstore", '"a"=>"1", "k 2"=>NULL', ""),
    "geometry": _extension("geometry", _POINT_WKB),
    "geography": _extension("geography", "0101000020E610000000000000000024400000000000003440"),
    "vector": _extension("vector", "[1,2,3]"),
    "halfvec": _extension("halfvec", "[1,2.5]"),
    "sparsevec": _extension("sparsevec", "{1:1.5,3:2}/5"),
    "enum": Sample(PgType(50_020, "mood", "inventory", TypeKind.ENUM, labels=("sad", "ok")), ("sad", "ok")),
    "domain": Sample(
        PgType(50_021, "dnum", "inventory", TypeKind.DOMAIN, _NUMERIC, numeric(7, 2)), ("123.45", "-0.01"), ("NaN",)
    ),
    "array": Sample(PgType(1007, "_int4", kind=TypeKind.ARRAY, inner=_INT4), ("{1,2,NULL}", "{}"), scalar=False),
    "int2vector": Sample(
        PgType(22, "int2vector", kind=TypeKind.ARRAY, inner=PgType(21, "int2")), ("1 2", ""), scalar=False
    ),
    "oidvector": Sample(
        PgType(30, "oidvector", kind=TypeKind.ARRAY, inner=PgType(26, "oid")), ("26 2", ""), scalar=False
    ),
    "composite": Sample(PgType(50_022, "pair", "inventory", TypeKind.COMPOSITE), ("(1,abc)",), scalar=False),
    "unknown": _base("pg_lsn", "16/B374D848", scalar=False),
}
