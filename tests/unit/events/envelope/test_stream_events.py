"""A segment's records leave in the order of the log, whatever table they belong to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.errors import ConversionError
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.record import lines
from cdc_core.events.envelope.stream_events import StreamRecords
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.types.options import FailureHandlingMode
from tests.support import plain_pgoutput as pg
from tests.unit.events.envelope.tiny import NOW, column, context, events

A, B, OUT = 1, 2, 3


def relation(oid: int, name: str) -> Relation:
    columns = (RelationColumn("id", 23, -1, True), RelationColumn("v", 25, -1, False))
    return Relation(oid, "s", name, ReplicaIdentity.DEFAULT, columns)


RELATIONS = {oid: relation(oid, name) for oid, name in ((A, "a"), (B, "b"), (OUT, "out"))}


def table_of(announced: Relation, lsn: int) -> TableSchema | None:
    if announced.oid == OUT:
        return None
    columns = (column("id", "int4", optional=False), column("v"))
    return TableSchema(TableId("s", announced.name), announced.oid, columns, ("id",))


class Stream:
    """A stream that is sorted and made into records as it goes; frames get LSNs 8 apart."""

    def __init__(self, ctx: EnvelopeContext, heartbeat_ms: int = 0) -> None:
        self.lsn = 1000
        self.now = NOW
        self.state = StreamState()
        self.events = StreamRecords(
            ctx,
            lambda table: events(table, ctx),
            wants_message=lambda prefix: prefix != "unwanted",
            heartbeat_ms=heartbeat_ms,
            now_ns=lambda: self.now,
        )

    def send(self, payloads: Iterable[bytes]) -> list[dict[str, Any]]:
        frames = []
        for payload in payloads:
            self.lsn += 8
            frames.append(pg.frame(payload, 0 if payload[:1] == b"R" else self.lsn))
        sorted_segment = sort_segment(Segment.of(frames), self.state, table_of)
        return [json.loads(line) for line in self.events.segment(sorted_segment)]


def row(oid: int, number: object, value: str | None = "x") -> bytes:
    return pg.insert(oid, [str(number).encode(), value and value.encode()])


def transaction(xid: int, *changes: bytes) -> list[bytes]:
    return [pg.begin(xid * 1000, 0, xid), *changes, pg.commit(xid * 1000, xid * 1000 + 50, 0)]


ANNOUNCED = [pg.relation_message(one) for one in RELATIONS.values()]


def brief(records: list[dict[str, Any]]) -> list[str]:
    out = []
    for record in records:
        payload = (record["value"] or {}).get("payload") or {}
        place = payload.get("transaction")
        name = record["topic"].removeprefix("fulfillment.")
        where = f" {place['total_order']}/{place['data_collection_order']}" if place else ""
        out.append(f"{name} {payload.get('status') or payload.get('op') or '-'}{where}")
    return out


CHANGES = transaction(
    5,
    row(A, 1),
    row(OUT, 1),
    row(B, 1),
    pg.update(A, [b"2", b"x"], [b"1", None], "K"),
    pg.message(0, "wanted", b"", True),
    pg.message(0, "unwanted", b"", True),
    pg.truncate([B, OUT, A]),
    pg.delete(B, [b"1", None]),
)


def test_rows_truncates_and_messages_stand_in_line() -> None:
    records = Stream(context()).send([*ANNOUNCED, *CHANGES])
    assert brief(records) == [
        *("s.a c", "s.b c", "s.a d", "s.a -", "s.a c", "message m"),
        *("s.b t", "s.a t", "s.b d", "s.b -"),
    ]


def test_places_count_what_is_written() -> None:
    records = Stream(context(provide_transaction_metadata=True)).send([*ANNOUNCED, *CHANGES])
    assert brief(records) == [
        *("transaction BEGIN", "s.a c 1/1", "s.b c 2/1", "s.a d 3/2", "s.a -", "s.a c 4/3", "message m 5/1"),
        *("s.b t 6/2", "s.a t 7/4", "s.b d 8/3", "s.b -", "transaction END"),
    ]
    end = records[-1]["value"]["payload"]
    assert end["event_count"] == 8
    counts = {one["data_collection"]: one["event_count"] for one in end["data_collections"]}
    assert (counts["s.a"], counts["s.b"], len(counts)) == (4, 3, 3)


def test_places_continue_when_a_segment_cuts_a_transaction() -> None:
    stream = Stream(context(provide_transaction_metadata=True, tombstones_on_delete=False))
    sent = [*ANNOUNCED, *CHANGES]
    records = stream.send(sent[:7]) + stream.send(sent[7:9]) + stream.send(sent[9:])
    records += stream.send(transaction(6, row(A, 9)))
    whole = Stream(context(provide_transaction_metadata=True, tombstones_on_delete=False)).send(
        [*sent, *transaction(6, row(A, 9))]
    )
    assert brief(records) == brief(whole)
    assert brief(records)[-2:] == ["s.a c 1/1", "transaction END"]


def test_skipped_operations_are_not_counted() -> None:
    ctx = context(skipped="ct", provide_transaction_metadata=True)
    records = Stream(ctx).send([*ANNOUNCED, *CHANGES])
    assert brief(records) == [
        *("transaction BEGIN", "s.a d 1/1", "s.a -", "message m 2/1", "s.b d 3/1", "s.b -", "transaction END"),
    ]


def test_the_id_is_xid_and_the_records_own_lsn() -> None:
    records = Stream(context(provide_transaction_metadata=True)).send([*ANNOUNCED, *transaction(5, row(A, 1))])
    payloads = [record["value"]["payload"] for record in records]
    assert [p.get("id") or p["transaction"]["id"] for p in payloads] == ["5:1032", "5:1040", "5:5050"]


def test_an_event_that_cannot_be_processed_stops_or_is_left_out() -> None:
    changes = transaction(5, *(row(A, n if n % 7 else "bad") for n in range(1, 30)))
    fail = {"event_converting_failure_handling_mode": FailureHandlingMode.FAIL}
    with pytest.raises(ConversionError):
        Stream(context(**fail)).send([*ANNOUNCED, *changes])
    ctx = context(
        **fail,
        event_processing_failure_handling_mode=FailureHandlingMode.SKIP,
        provide_transaction_metadata=True,
    )
    records = Stream(ctx).send([*ANNOUNCED, *changes])
    kept = [record["key"]["payload"]["id"] for record in records[1:-1]]
    assert kept == [n for n in range(1, 30) if n % 7]
    assert records[-1]["value"]["payload"]["event_count"] == len(kept)


def test_heartbeats_come_with_events_and_without() -> None:
    stream = Stream(context(), heartbeat_ms=500)
    assert brief(stream.send([*ANNOUNCED, *transaction(5, row(A, 1))])) == ["s.a c"]
    stream.now += 600_000_000
    assert brief(stream.send(transaction(6, row(A, 2)))) == ["s.a c", "__debezium-heartbeat.fulfillment -"]
    assert not stream.events.idle().num_rows
    stream.now += 500_000_000
    assert [json.loads(line)["topic"] for line in lines(stream.events.idle())] == ["__debezium-heartbeat.fulfillment"]


def test_a_table_version_is_built_once() -> None:
    built = []
    ctx = context()

    def build(table: TableSchema) -> Any:
        built.append(table.id.table)
        return events(table, ctx)

    made, state = StreamRecords(ctx, build), StreamState()
    for xid in (5, 6):
        payloads = [*(ANNOUNCED if xid == 5 else []), *transaction(xid, row(A, 1), row(B, 1))]
        segment = Segment.of([pg.frame(payload, 8) for payload in payloads])
        assert made.segment(sort_segment(segment, state, table_of))
    assert sorted(built) == ["a", "b"]
