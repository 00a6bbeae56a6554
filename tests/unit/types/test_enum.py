"""Enums."""

from __future__ import annotations

from tests.unit.types.converters import codec_of, enum, event_of, obeys_laws, values


def test_labels_stand_in_the_schema_in_sort_order() -> None:
    event = event_of(enum("sad", "ok", "happy"))
    assert event.schema.to_dict() == {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": "sad,ok,happy"},
    }
    assert values(event.convert, "ok", None) == ["ok", None]
    assert event.unavailable == "__debezium_unavailable_value"
    assert event.fallback == ""


def test_laws() -> None:
    codec = codec_of(enum("a", "b"))
    obeys_laws(codec.natural.convert, codec.natural.arrow_type, "a", None, "b")
