"""Network addresses, ranges, ltree and tsvector: the server's text."""

from __future__ import annotations

import pytest

from cdc_core.schema.pg_type import PgType, TypeKind
from tests.unit.types.converters import base, codec_of, event_of, from_extension, obeys_laws, values

CASES = [
    (base("inet"), "192.168.1.5/24", None),
    (base("cidr"), "2001:db8::/32", None),
    (base("macaddr"), "08:00:2b:01:02:03", None),
    (base("macaddr8"), "08:00:2b:01:02:03:04:05", None),
    (PgType(1, "tstzrange", kind=TypeKind.RANGE), '["2010-01-01 14:30:00+00","2010-01-01 15:30:00+00")', None),
    (PgType(1, "numrange", kind=TypeKind.RANGE), "(1.5,2.5]", None),
    (from_extension("ltree"), "Top.Science", "io.debezium.data.Ltree"),
    (base("tsvector"), "'brown':3 'fox':4", "io.debezium.data.Tsvector"),
]


@pytest.mark.parametrize(("pg_type", "text", "name"), CASES, ids=lambda value: getattr(value, "name", ""))
def test_text_on_both_faces(pg_type: PgType, text: str, name: str | None) -> None:
    codec = codec_of(pg_type)
    obeys_laws(codec.natural.convert, codec.natural.arrow_type, text, None, "")
    event = event_of(pg_type)
    assert values(event.convert, text, None) == [text, None]
    assert event.schema.name == name
    assert event.unavailable == "__debezium_unavailable_value"
    assert event.fallback == ""
