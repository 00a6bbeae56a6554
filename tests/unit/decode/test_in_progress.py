"""Transactions in progress (protocol version 2): the messages of version 1 come out, whatever came in between."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.decode.held import HeldSegments
from cdc_core.decode.pgoutput.in_progress import InProgressTranslator
from cdc_core.decode.segment import Segment
from cdc_core.errors import InProgressLimitError, ProtocolError
from tests.support import plain_pgoutput as plain

OID = 16_400
TIME = 700_000_000_000_000


def start(xid: int, first: bool) -> bytes:
    return struct.pack("!cIB", b"S", xid, first)


def abort(xid: int, subtransaction: int) -> bytes:
    return struct.pack("!cII", b"A", xid, subtransaction)


def commit(xid: int, lsn: int) -> bytes:
    return struct.pack("!cIBqqq", b"c", xid, 0, lsn, lsn + 8, TIME)


def tagged(payload: bytes, xid: int) -> bytes:
    return payload[:1] + struct.pack("!I", xid) + payload[1:]


@dataclass
class Running:
    """A transaction of the model: ``rows`` with the subtransactions that each is in."""

    xid: int
    first_lsn: int = 0
    subs: list[int] = field(default_factory=list)
    released: dict[int, list[int]] = field(default_factory=dict)
    streamed: set[int] = field(default_factory=set)
    rows: list[tuple[tuple[int, ...], bytes]] = field(default_factory=list)


@dataclass
class Server:
    """What a server sends with ``streaming``, and what it would send without."""

    sent: list[bytes] = field(default_factory=list)
    expected: list[bytes] = field(default_factory=list)
    running: dict[int, Running] = field(default_factory=dict)
    lsn: int = 100
    next_xid: int = 10

    def send(self, payload: bytes) -> bytes:
        self.lsn += 1
        self.sent.append(plain.frame(payload, self.lsn))
        return self.sent[-1]

    def rows(self, slot: int, values: list[bytes]) -> None:
        one = self.running.get(slot)
        if one is None:
            one = self.running[slot] = Running(self.xid())
        is_first = not one.streamed
        self.send(start(one.xid, is_first))
        if is_first:
            one.first_lsn = self.lsn
            self.send(b"O" + bytes(8) + b"elsewhere\0")
            one.rows.append(((), self.sent[-1]))
        inside = tuple(one.subs)
        for value in values:
            payload = plain.insert(OID, [value.hex()])
            self.send(tagged(payload, inside[-1] if inside else one.xid))
            one.rows.append((inside, plain.frame(payload, self.lsn)))
        if values:
            one.streamed |= {inside[-1] if inside else one.xid}
        one.streamed.add(one.xid)
        self.send(b"E")

    def savepoint(self, slot: int) -> None:
        if slot in self.running:
            self.running[slot].subs.append(self.xid())

    def release(self, slot: int) -> None:
        one = self.running.get(slot)
        if one is not None and one.subs:
            sub = one.subs.pop()
            outer = one.subs[-1] if one.subs else one.xid
            one.released.setdefault(outer, []).extend([*one.released.pop(sub, []), sub])

    def rollback_to(self, slot: int) -> None:
        one = self.running.get(slot)
        if one is None or not one.subs:
            return
        sub = one.subs.pop()
        for ended in [*one.released.pop(sub, []), sub]:
            if ended in one.streamed:
                self.send(abort(one.xid, ended))
        one.rows = [(path, row) for path, row in one.rows if sub not in path]

    def end(self, slot: int, *, commits: bool) -> None:
        one = self.running.pop(slot, None)
        if one is None:
            return
        if not commits:
            self.send(abort(one.xid, one.xid))
            return
        last = self.send(commit(one.xid, self.lsn))
        if len(one.rows) == 1:  # only the origin
            return
        lsn = self.lsn - 1
        self.expected.append(plain.frame(struct.pack("!cqqI", b"B", lsn, TIME, one.xid), one.first_lsn))
        self.expected += [row for _, row in one.rows]
        self.expected.append(last[:25] + struct.pack("!cBqqq", b"C", 0, lsn, lsn + 8, TIME))

    def small(self) -> None:
        for payload in (
            struct.pack("!cqqI", b"B", self.lsn, TIME, self.xid()),
            plain.insert(OID, ["small"]),
            struct.pack("!cBqqq", b"C", 0, self.lsn, self.lsn, TIME),
            plain.message(1, "prefix", b"outside", transactional=False),
        ):
            self.expected.append(self.send(payload))

    def xid(self) -> int:
        self.next_xid += 1
        return self.next_xid


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["rows", "rows", "rows", "savepoint", "rollback", "release", "commit", "abort", "small"]),
        st.integers(0, 2),
        st.lists(st.binary(max_size=30), max_size=3),
    ),
    max_size=60,
)


def played(steps: list[tuple[str, int, list[bytes]]]) -> Server:
    server = Server()
    for name, slot, values in steps:
        if name == "rows":
            server.rows(slot, values)
        elif name == "savepoint":
            server.savepoint(slot)
        elif name == "rollback":
            server.rollback_to(slot)
        elif name == "release":
            server.release(slot)
        elif name == "small":
            server.small()
        else:
            server.end(slot, commits=name == "commit")
    return server


def translated(frames: list[bytes], step: int, memory_bytes: int) -> bytes:
    translator, out = InProgressTranslator(memory_bytes=memory_bytes), b""
    for first in range(0, len(frames), step):
        for segment in translator.feed(Segment.of(frames[first : first + step])):
            assert int(segment.ends[-1]) == len(segment.buffer)
            out += bytes(segment.buffer)
    translator.close()
    return out


@given(STEPS, st.integers(1, 40), st.sampled_from([0, 200, 1 << 20]))
def test_the_messages_of_version_1_come_out(
    steps: list[tuple[str, int, list[bytes]]], step: int, memory_bytes: int
) -> None:
    server = played(steps)
    assert translated(server.sent, step, memory_bytes) == b"".join(server.expected)


def test_a_message_of_a_rolled_back_subtransaction_is_removed() -> None:
    """The server names the top-level transaction in it: it is inside of the subtransaction's rows."""
    row = plain.insert(OID, ["v"])
    message = plain.message(1, "p", b"inside", transactional=True)
    payloads = [start(7, True), tagged(row, 7), tagged(row, 8), tagged(message, 7), b"E", abort(7, 8), commit(7, 50)]
    frames = [plain.frame(payload, 100 + at) for at, payload in enumerate(payloads)]
    out = translated(frames, 100, 0)
    assert b"inside" not in out
    assert out.count(row) == 1


ROW = tagged(plain.insert(OID, ["v"]), 7)


@pytest.mark.parametrize(
    "payloads",
    [
        [start(7, False)],
        [start(7, True), start(8, True)],
        [start(7, True)[:-1]],
        [b"E"],
        [start(7, True), commit(7, 5)],
        [commit(7, 5)],
        [start(7, True), ROW, b"E", commit(7, 5)[:-2]],
        [start(7, True), ROW, b"E", abort(7, 7) + b"more"],
        [start(7, True), struct.pack("!cqqI", b"B", 1, TIME, 9)],
        [start(7, True), b"I\0\0"],
    ],
)
def test_what_no_server_sends_is_an_error(payloads: list[bytes]) -> None:
    frames = [plain.frame(payload, 100 + at) for at, payload in enumerate(payloads)]
    with pytest.raises(ProtocolError):
        translated(frames, 100, 0)
    with pytest.raises(ProtocolError):
        translated(frames, 1, 0)


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(0, 20), st.integers(0, 300), st.booleans())
def test_discarded_changes_are_not_sent(sizes: list[int], count: int, memory_bytes: int, spills: bool) -> None:
    held = HeldSegments(memory_bytes=memory_bytes)
    frames = [[bytes([at, number]) * 20 for number in range(size)] for at, size in enumerate(sizes)]
    for part in frames:
        held.add(Segment.of(part))
    if spills:
        held.spill()
    flat = [each for part in frames for each in part][:count]
    held.cut(count)
    assert held.frames == len(flat)
    assert held.bytes_kept == len(b"".join(flat))
    held.add(Segment.of([b"after"]))
    held.spill()
    assert held.bytes_kept == len(b"".join(flat)) + len(b"after")
    assert b"".join(bytes(each.buffer) for each in held.take()) == b"".join([*flat, b"after"])
    assert held.bytes_kept == 0


@pytest.mark.parametrize("memory_bytes", [0, 1 << 20])
def test_what_is_kept_of_all_transactions_together_has_a_limit(memory_bytes: int) -> None:
    row = plain.insert(OID, ["v" * 100])
    size = len(plain.frame(row, 1))
    translator = InProgressTranslator(memory_bytes=memory_bytes, max_bytes=10 * size)

    def feed(*payloads: bytes) -> None:
        assert not list(translator.feed(Segment.of([plain.frame(each, 1) for each in payloads])))

    for xid in (7, 8):
        feed(start(xid, True), *[tagged(row, xid)] * 3, *[tagged(row, xid + 100)] * 2, b"E")
    # What is rolled back gives room: a subtransaction, a transaction.
    feed(abort(7, 107), start(7, False), *[tagged(row, 7)] * 2, b"E", abort(8, 8))
    feed(start(7, False), *[tagged(row, 7)] * 5, b"E")
    with pytest.raises(InProgressLimitError, match=f"{10 * size:,} bytes"):
        feed(start(9, True), tagged(row, 9), b"E")
    translator.close()


def test_a_file_has_no_name(tmp_path: Path) -> None:
    translator = InProgressTranslator(tmp_path, memory_bytes=0)
    assert not list(translator.feed(Segment.of([plain.frame(each, 1) for each in (start(7, True), ROW, b"E")])))
    assert list(tmp_path.iterdir()) == []
    translator.close()
