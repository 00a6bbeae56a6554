"""Logical messages and heartbeats."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from cdc_core.decode.pgoutput.stream_state import LogicalMessage
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.heartbeat_event import HeartbeatEvents
from cdc_core.events.envelope.message_event import MessageEvents
from cdc_core.events.envelope.record import lines
from cdc_core.events.envelope.transaction import EventNumbers
from cdc_core.schema.options import SchemaOptions
from cdc_core.types.options import BinaryHandlingMode
from tests.unit.events.envelope.tiny import NOW, context

MESSAGE = LogicalMessage(3, 160, False, "foo", b"\xfb\xff1", None, None, 160, None, 1_234_567, None, None)


def record(message: LogicalMessage, ctx: EnvelopeContext | None = None, orders: EventNumbers | None = None) -> dict:
    return json.loads(lines(MessageEvents(ctx or context()).make(message, orders, NOW))[0])


def test_a_message_outside_a_transaction() -> None:
    made = record(MESSAGE)
    assert (made["topic"], made["key"]["payload"], made["headers"]) == ("fulfillment.message", {"prefix": "foo"}, [])
    payload = made["value"]["payload"]
    assert list(payload) == ["op", "ts_ms", "source", "transaction", "message"]
    assert (payload["op"], payload["transaction"], payload["source"]["txId"]) == ("m", None, None)
    assert payload["source"]["sequence"] == '["160","160"]'
    assert (payload["source"]["schema"], payload["source"]["table"], payload["source"]["ts_ms"]) == ("", "", 1234)


def test_a_message_in_a_transaction_has_its_place() -> None:
    inside = replace(MESSAGE, transactional=True, xid=9, prior_end_lsn=0)
    payload = record(inside, orders=EventNumbers(np.array([4]), np.array([1])))["value"]["payload"]
    assert payload["transaction"] == {"id": "9:160", "total_order": 4, "data_collection_order": 1}
    assert payload["source"]["sequence"] == '[null,"160"]'


@pytest.mark.parametrize(
    ("mode", "kind", "content"),
    [
        ("bytes", "bytes", "+/8x"),
        ("base64", "string", "+/8x"),
        ("base64-url-safe", "string", "-_8x"),
        ("hex", "string", "fbff31"),
    ],
)
def test_content_by_binary_mode(mode: str, kind: str, content: str) -> None:
    ctx = EnvelopeContext.of(SchemaOptions(topic_prefix="p"), "db", binary=BinaryHandlingMode(mode))
    value = record(MESSAGE, ctx)["value"]
    assert value["payload"]["message"] == {"prefix": "foo", "content": content}
    assert value["schema"]["fields"][4]["fields"][1]["type"] == kind


def test_heartbeats_come_at_their_interval() -> None:
    beats = HeartbeatEvents(context(), 500, NOW)
    assert not beats.due(NOW + 499_000_000)
    assert beats.due(NOW + 500_000_000)
    made = json.loads(lines(beats.make(9, NOW + 500_000_000))[0])
    assert (made["topic"], made["key"]["payload"]) == (
        "__debezium-heartbeat.fulfillment",
        {"serverName": "fulfillment"},
    )
    assert made["value"]["payload"] == {"ts_ms": (NOW + 500_000_000) // 1_000_000}
    assert not beats.due(NOW + 600_000_000)
    assert not HeartbeatEvents(context(), 0, NOW).due(NOW + 10**12)
