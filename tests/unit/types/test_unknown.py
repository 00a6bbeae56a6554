"""Types without a converter, and those whose value is their text."""

from __future__ import annotations

import pytest

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.types.options import BinaryHandlingMode
from tests.unit.types.converters import base, codec_of, event_of, from_extension, obeys_laws, values

PLACEHOLDER = "__debezium_unavailable_value"
UNKNOWN = [
    base("pg_lsn"),
    base("tsquery"),
    from_extension("semver"),
    PgType(1, "address", "inventory", TypeKind.COMPOSITE),
    PgType(1, "floatrange", "inventory", TypeKind.RANGE, base("float8")),
    PgType(1, "int4multirange", "pg_catalog", TypeKind.MULTIRANGE, base("int4")),
]


@pytest.mark.parametrize("pg_type", UNKNOWN, ids=lambda pg_type: pg_type.name)
def test_left_out_unless_included(pg_type: PgType) -> None:
    codec = codec_of(pg_type)
    assert codec.event is None
    assert values(codec.natural.convert, "(1,a)", None) == ["(1,a)", None]
    event = event_of(pg_type, include_unknown_datatypes=True)
    assert event.schema.to_dict() == {"type": "bytes", "optional": True}
    assert values(event.convert, "(1,a)", None) == [b"(1,a)", None]


@pytest.mark.parametrize(
    ("mode", "expected", "unavailable"),
    [
        (BinaryHandlingMode.BYTES, b"\xc3\xbf>?", PLACEHOLDER.encode()),
        (BinaryHandlingMode.BASE64, "w78+Pw==", None),
        (BinaryHandlingMode.BASE64_URL_SAFE, "w78-Pw==", None),
        (BinaryHandlingMode.HEX, "c3bf3e3f", PLACEHOLDER),
    ],
)
def test_opaque_by_binary_mode(mode: BinaryHandlingMode, expected: object, unavailable: object) -> None:
    event = event_of(base("pg_lsn"), include_unknown_datatypes=True, binary_handling_mode=mode)
    assert values(event.convert, "ÿ>?") == [expected]
    assert event.unavailable == unavailable
    obeys_laws(event.convert, event.arrow_type, "a", None, "ab", "", "abc", "ÿ>?")
