"""Which offset is a connector's: keys, texts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.lsn import Lsn
from cdc_core.offsets.delivered import Adoption, Delivered, DeliveredPart
from cdc_core.offsets.entries import choose, file_of, from_text, key_json
from cdc_core.offsets.java_map import read_map
from cdc_core.offsets.offset import DebeziumOffset, offset_json
from tests.support.debezium_offsets import Received, offsets

DATA = Path(__file__).parents[2] / "data"

VALUE = {"lsn": 100, "lsn_proc": 100, "lsn_commit": 90, "txId": 7, "ts_usec": 5, "messageType": "INSERT"}
OFFSET = DebeziumOffset(Lsn(100), Lsn(100), Lsn(90), 7, 5, "INSERT")


def entry(connector: str, server: str, value: object = VALUE) -> tuple[bytes, bytes | None]:
    return key_json(connector, server).encode(), None if value is None else json.dumps(value).encode()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([["n", {"server": "p"}], VALUE]),
        json.dumps(["n", {"server": "p"}]) + "\t" + json.dumps(VALUE) + "\n",
        json.dumps({"payload": ["n", {"server": "p"}]}) + ":" + json.dumps({"payload": VALUE}),
    ],
)
def test_key_and_value(text: str) -> None:
    found = from_text(text)
    assert (found.connector, found.server, found.offset) == ("n", "p", OFFSET)


def test_a_value_alone() -> None:
    found = from_text(json.dumps(VALUE))
    assert (found.connector, found.server, found.offset) == ("", "", OFFSET)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", "[1]", '{"lsn": "x"}', '{"lsn": true}', '{"lsn": 1} {"lsn": 2}', "[" * 5000, "null"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        from_text(text)


def test_the_newest_entry_of_the_prefix_is_taken() -> None:
    older = entry("n", "p", {**VALUE, "lsn": 1})
    strange = [(b"\xff", b"{}"), (b"[]", b"{}"), entry("mysql", "m", {"file": "b", "pos": 4})]
    assert choose([older, *strange, entry("n", "p"), entry("n", "other")], "x", "p", "f").offset == OFFSET


def test_the_name_decides_between_several() -> None:
    entries = [entry("one", "p", {**VALUE, "lsn": 1}), entry("two", "p")]
    assert choose(entries, "two", "p", "f").offset == OFFSET
    with pytest.raises(ConfigError, match=r"one \(topic.prefix p\), two \(topic.prefix p\)"):
        choose(entries, "three", "p", "f")


def test_an_offset_that_was_deleted_is_none() -> None:
    with pytest.raises(ConfigError):
        choose([entry("n", "p"), entry("n", "p", None)], "n", "p", "f")


def test_snapshots() -> None:
    begun = {"lsn": 5, "txId": 3, "ts_usec": 1}
    assert DebeziumOffset.of({**begun, "snapshot": "INITIAL", "last_snapshot_record": False}).in_snapshot
    assert DebeziumOffset.of({**begun, "snapshot": True}).in_snapshot
    ended = DebeziumOffset.of({**begun, "snapshot": "INITIAL", "last_snapshot_record": True})
    assert (ended.is_of_snapshot, ended.in_snapshot, ended.boundary) == (True, False, 5)
    assert not DebeziumOffset.of({**begun, "snapshot": False}).is_of_snapshot


def test_an_incremental_snapshot() -> None:
    collections = json.dumps([{"incremental_snapshot_collections_id": "public.t"}])
    assert DebeziumOffset.of({"lsn": 5, "incremental_snapshot_collections": collections}).incremental == ("public.t",)
    assert DebeziumOffset.of({"lsn": 5, "incremental_snapshot_collections": "other"}).incremental == ("other",)


def test_a_lsn_beyond_a_java_long() -> None:
    assert DebeziumOffset.of({"lsn": -1}).lsn == 2**64 - 1


def test_the_way_back() -> None:
    text = offset_json(Lsn(100), 7, 5)
    found = DebeziumOffset.of(json.loads(text))
    assert (found.lsn, found.lsn_proc, found.lsn_commit, found.xid, found.ts_us) == (100, 100, 100, 7, 5)
    assert read_map(file_of("n", "p", text), "f") == [(b'["n",{"server":"p"}]', text.encode())]
    assert "txId" not in json.loads(offset_json(Lsn(1), None, None))


@pytest.mark.parametrize("part", [None, DeliveredPart(Lsn(9), Lsn(5)), DeliveredPart(Lsn(9), Lsn(5), 2, (("s.t", 4),))])
def test_what_was_decided_survives_as_text(part: DeliveredPart | None) -> None:
    made = Adoption(True, Lsn(7), Delivered(Lsn(3), part, message_at_commit=part is None))
    assert Adoption.from_json(made.to_json()) == made


def test_what_debezium_stored() -> None:
    """The rule by which other tests make offsets is that of a real 3.6.3, and its file is read."""
    recorded = json.loads((DATA / "debezium_offsets.json").read_text())
    last = recorded["snapshot"][-1]
    assert [DebeziumOffset.of(one).in_snapshot for one in recorded["snapshot"]] == [True, True, False]
    received = [
        Received(**{name: value for name, value in one.items() if name != "offset"}) for one in recorded["stream"]
    ]
    before = {"ts_usec": last["ts_usec"]}
    for one, made in zip(recorded["stream"], offsets(received, before), strict=True):
        assert one.get("offset", made) == made
    [(key, value)] = read_map((DATA / "debezium_offsets.dat").read_bytes(), "f")
    assert json.loads(value or b"") == recorded["stream"][-1]["offset"]
    assert from_text(f"{key.decode()}\t{(value or b'').decode()}").server == "rec"
