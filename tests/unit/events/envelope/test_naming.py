"""Topics and schemas bear the names Debezium gives them."""

from __future__ import annotations

import pytest

from cdc_core.errors import TableError
from cdc_core.schema.naming import Names, adjust_field_name, adjust_schema_name
from cdc_core.schema.options import NameAdjustmentMode, SchemaOptions, TopicNaming
from cdc_core.schema.table import TableId
from tests.unit.events.envelope import tiny

AVRO, UNICODE = NameAdjustmentMode.AVRO, NameAdjustmentMode.AVRO_UNICODE


def names(**options: object) -> Names:
    return Names(SchemaOptions(**{"topic_prefix": "p", **options}))  # type: ignore[arg-type]


def test_a_topic_is_prefix_schema_table_and_strangers_become_underscores() -> None:
    assert names().topic(TableId("inventory", "We ird-Näme")) == "p.inventory.We_ird-N_me"


def test_the_delimiter_may_be_another() -> None:
    assert names(topic_delimiter="-").topic(TableId("s", "t")) == "p-s-t"
    assert names(topic_delimiter="-").transaction_topic == "p-transaction"
    assert names(topic_delimiter="-").message_topic == "p.message"


def test_the_unicode_strategy_spells_strangers_and_the_underscore_out() -> None:
    topic = names(topic_naming_strategy=TopicNaming.SCHEMA_UNICODE).topic(TableId("a_b", "ä日"))
    assert topic == "p.a_u005fb._u00e4_u65e5"


def test_two_tables_whose_names_become_one_are_refused() -> None:
    given = names()
    given.topic(TableId("s", "a b"))
    assert given.topic(TableId("s", "a b")) == "p.s.a_b"
    with pytest.raises(TableError, match=r"would both be written to topic p\.s\.a_b"):
        given.topic(TableId("s", "a!b"))


def test_long_topics_are_cut() -> None:
    assert len(names().topic(TableId("s", "t" * 300))) == 249


def test_heartbeats_go_to_their_own_topic() -> None:
    assert names().heartbeat_topic == "__debezium-heartbeat.p"
    assert names(topic_heartbeat_name="beats").heartbeat_topic == "beats"


@pytest.mark.parametrize(
    ("mode", "name", "schema", "field"),
    [
        (NameAdjustmentMode.NONE, "1 a.b", "1 a.b", "1 a.b"),
        (AVRO, "a-b.c", "a_b.c", "a_b_c"),
        (AVRO, "1a", "_1a", "_1a"),
        (AVRO, "_x", "_x", "_x"),
        (AVRO, "", "", ""),
        (UNICODE, "a_b.c", "a_u005fb.c", "a_u005fb_u002ec"),
        (UNICODE, "1a", "_u0031a", "_u0031a"),
        (UNICODE, "é", "_u00e9", "_u00e9"),
        (UNICODE, "𝄞", "_ud834_udd1e", "_ud834_udd1e"),
    ],
)
def test_adjustment(mode: NameAdjustmentMode, name: str, schema: str, field: str) -> None:
    assert adjust_schema_name(name, mode) == schema
    assert adjust_field_name(name, mode) == field


def test_the_older_property_means_avro_fields() -> None:
    assert names(sanitize_field_names=True).field_name("a b") == "a_b"
    assert names(sanitize_field_names=True).schema_name("a b") == "a b"


def test_topics_renamed_by_an_expression() -> None:
    settings = {"topic_regex": r"(.*)customers", "topic_replacement": "$1all"}
    ctx = tiny.context({**settings, "topic_naming_strategy": TopicNaming.SCHEMA_REGEX})
    found = tiny.made(tiny.events(ctx=ctx), [("I", None, {"id": "1", "name": "a", "note": None})])[0]
    assert found["topic"] == "fulfillment.inventory.all"
    origin = "fulfillment.inventory.customers"
    assert found["key"]["payload"] == {"id": 1, "__dbz__physicalTableIdentifier": origin}
    assert found["key"]["schema"]["name"] == "fulfillment.inventory.all.Key"
    assert found["value"]["schema"]["name"] == "fulfillment.inventory.all.Envelope"
    named = {"topic_key_field_name": "from", "topic_key_field_regex": r"\w+\.(.*)", "topic_key_field_replacement": "$1"}
    ctx = tiny.context({**settings, **named, "topic_naming_strategy": TopicNaming.DEFAULT_REGEX})
    found = tiny.made(tiny.events(ctx=ctx), [("I", None, {"id": "1", "name": "a", "note": None})])[0]
    assert found["topic"] == "fulfillment.all" and found["key"]["payload"] == {"id": 1, "from": "customers"}
    off = {"topic_naming_strategy": TopicNaming.SCHEMA_REGEX, "topic_key_enforce_uniqueness": False}
    found = tiny.made(tiny.events(ctx=tiny.context({**settings, **off})), [("DK", {"id": "1"}, None)])[0]
    assert found["key"]["payload"] == {"id": 1}
