"""Domains: nested, with inherited length and scale, over scalars, enums and arrays."""

from __future__ import annotations

from decimal import Decimal

from cdc_core.types.options import BinaryHandlingMode, HstoreHandlingMode
from tests.unit.types.converters import array_of, base, codec_of, domain, enum, event_of, from_extension, values

PLACEHOLDER = "__debezium_unavailable_value"
NUMERIC_7_2 = (7 << 16 | 2) + 4


def test_a_nested_domain_inherits_the_modifier_nearest_to_the_base() -> None:
    nested = domain(domain(base("numeric"), NUMERIC_7_2, "dnum"), -1, "dd")
    assert dict(event_of(nested).schema.parameters) == {"scale": "2", "connect.decimal.precision": "7"}
    assert values(codec_of(nested).natural.convert, "99999.99") == [Decimal("99999.99")]


def test_domains_over_enums_and_arrays() -> None:
    assert dict(event_of(domain(enum("a", "b"))).schema.parameters) == {"allowed": "a,b"}
    assert values(codec_of(domain(array_of(base("int4")))).natural.convert, "{1,2}") == [[1, 2]]


def test_placeholders_go_by_the_domains_own_name() -> None:
    assert event_of(domain(base("text"))).unavailable == PLACEHOLDER
    assert event_of(domain(from_extension("hstore"))).unavailable == PLACEHOLDER
    mapped = event_of(domain(from_extension("hstore")), hstore_handling_mode=HstoreHandlingMode.MAP)
    assert mapped.unavailable is None
    assert event_of(domain(base("bytea"))).unavailable == PLACEHOLDER.encode()
    base64 = event_of(domain(base("bytea")), binary_handling_mode=BinaryHandlingMode.BASE64)
    assert base64.unavailable is None
    assert event_of(domain(array_of(base("text")))).unavailable is None
