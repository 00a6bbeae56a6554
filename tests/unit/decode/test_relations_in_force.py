"""Relations that change beside transactions in progress: each row comes out under its own relation."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from cdc_core.decode.pgoutput.in_progress import InProgressTranslator
from cdc_core.decode.segment import Segment
from tests.support import plain_pgoutput as plain

TIME = 700_000_000_000_000
OIDS = (16_400, 16_401)


def begin(xid: int, lsn: int) -> bytes:
    return struct.pack("!cqqI", b"B", lsn, TIME, xid)


def commit(lsn: int) -> bytes:
    return struct.pack("!cBqqq", b"C", 0, lsn, lsn + 8, TIME)


def tagged(payload: bytes, xid: int) -> bytes:
    return payload[:1] + struct.pack("!I", xid) + payload[1:]


def relation(oid: int, version: int) -> bytes:
    return struct.pack("!cI", b"R", oid) + b"version %d" % version


@dataclass
class Pending:
    """A transaction of the model. ``head`` is the header of its first change in the stream, or of its first block."""

    xid: int
    head: bytes = b""
    blocks: int = 0
    rows: list[bytes] = field(default_factory=list)


@dataclass
class Cached:
    """What the server knows of a relation that it announced: to all, or within transactions in progress."""

    version: int = 0
    is_valid: bool = False
    is_sent: bool = False
    within: set[int] = field(default_factory=set)


@dataclass
class Server:
    """What a server sends, and the rows that version 1 would send, each with the version of its relation."""

    sent: list[bytes] = field(default_factory=list)
    expected: list[bytes] = field(default_factory=list)
    pending: dict[int, Pending] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=lambda: dict.fromkeys(OIDS, 1))
    cache: dict[int, Cached] = field(default_factory=lambda: {oid: Cached() for oid in OIDS})
    lsn: int = 100
    xid: int = 10

    def send(self, payload: bytes) -> bytes:
        self.lsn += 1
        self.sent.append(plain.frame(payload, self.lsn))
        return self.sent[-1]

    def announce(self, oid: int, streamed: int | None) -> None:
        entry = self.cache[oid]
        if not entry.is_valid:
            self.cache[oid] = entry = Cached(self.versions[oid], is_valid=True)
        if streamed is None and not entry.is_sent:
            self.sent.append(plain.frame(relation(oid, entry.version)))
            entry.is_sent = True
        elif streamed is not None and streamed not in entry.within:
            self.sent.append(plain.frame(tagged(relation(oid, entry.version), streamed)))
            entry.within.add(streamed)

    def rows(self, one: Pending, wanted: list[int], *, streamed: bool) -> list[bytes]:
        """Send rows (numbers of relations; 2: a truncate of both); returns them as version 1 sends them."""
        out = []
        for number in wanted:
            oids = OIDS if number == 2 else OIDS[number : number + 1]
            for oid in oids:
                self.announce(oid, one.xid if streamed else None)
            values = [str(self.versions[oid]) for oid in oids]
            payload = plain.truncate(list(oids)) if number == 2 else plain.insert(oids[0], list(values))
            if number == 2:  # the versions are where the options are: nothing here reads these
                payload = payload[:5] + bytes([self.versions[OIDS[0]] * 16 + self.versions[OIDS[1]]]) + payload[6:]
            found = self.send(tagged(payload, one.xid) if streamed else payload)
            one.head = one.head or found[:25]
            out.append(found[:25] + payload)
        return out

    def small(self, wanted: list[int]) -> None:
        if wanted:
            one = Pending(self.new_xid())
            begun, lsn = self.send(begin(one.xid, self.lsn + 50)), self.lsn + 50
            rows = self.rows(one, wanted, streamed=False)
            self.expected += [begun, *rows, self.send(commit(lsn))]

    def stream(self, slot: int, wanted: list[int]) -> None:
        one = self.pending.setdefault(slot, Pending(self.new_xid()))
        started = self.send(struct.pack("!cIB", b"S", one.xid, one.blocks == 0))
        one.head, one.blocks = one.head or started[:25], one.blocks + 1
        one.rows += self.rows(one, wanted, streamed=True)
        self.send(b"E")

    def decide(self, slot: int, *, commits: bool) -> None:
        one = self.pending.pop(slot, None)
        if one is None:
            return
        lsn = self.lsn
        if commits:
            last = self.send(struct.pack("!cIBqqq", b"c", one.xid, 0, lsn, lsn + 8, TIME))
        else:
            last = self.send(struct.pack("!cII", b"A", one.xid, one.xid))
        for entry in self.cache.values():
            entry.is_sent |= commits and one.xid in entry.within
            entry.within.discard(one.xid)
        if commits and one.rows:
            self.expected += [one.head + begin(one.xid, lsn), *one.rows, last[:25] + commit(lsn)]

    def alter(self, oid: int) -> None:
        """A column list changes: no lock of a transaction prevents it."""
        self.versions[oid] = self.versions[oid] % 15 + 1
        self.cache[oid].is_valid = False

    def new_xid(self) -> int:
        self.xid += 1
        return self.xid


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["small", "small", "stream", "stream", "commit", "rollback", "alter"]),
        st.integers(0, 2),
        st.lists(st.sampled_from([0, 0, 1, 1, 2]), max_size=3),
    ),
    max_size=50,
)


def played(steps: list[tuple[str, int, list[int]]]) -> Server:
    server = Server()
    for name, slot, wanted in steps:
        if name == "small":
            server.small(wanted)
        elif name == "stream":
            server.stream(slot, wanted)
        elif name == "alter":
            server.alter(OIDS[slot % 2])
        else:
            server.decide(slot, commits=name == "commit")
    return server


def translated(frames: list[bytes], step: int, memory_bytes: int) -> list[bytes]:
    translator, out = InProgressTranslator(memory_bytes=memory_bytes), []
    for first in range(0, len(frames), step):
        for segment in translator.feed(Segment.of(frames[first : first + step])):
            bounds = [0, *map(int, segment.ends)]
            out += [bytes(segment.buffer[low:high]) for low, high in pairwise(bounds)]
    translator.close()
    return out


def without_relations(frames: list[bytes]) -> list[bytes]:
    """Return the other frames; each row has the version that its relation was announced with last."""
    known: dict[int, bytes] = {}
    for each in frames:
        payload = each[25:]
        kind, oid = payload[:1], int.from_bytes(payload[1:5])
        if kind == b"R":
            known[oid] = payload.split()[-1]
        elif kind == b"I":
            assert plain.insert(oid, [known[oid].decode()]) == payload
        elif kind == b"T":
            assert payload[5] == int(known[OIDS[0]]) * 16 + int(known[OIDS[1]])
    return [each for each in frames if each[25:26] != b"R"]


@given(STEPS, st.integers(1, 40), st.sampled_from([0, 200, 1 << 20]))
def test_the_messages_of_version_1_come_out(
    steps: list[tuple[str, int, list[int]]], step: int, memory_bytes: int
) -> None:
    server = played(steps)
    assert without_relations(translated(server.sent, step, memory_bytes)) == server.expected


def kinds_of(server: Server) -> bytes:
    """Return the kinds of what is passed on, whose rows have the relations that they were sent with."""
    frames = translated(server.sent, 100, 1 << 20)
    assert without_relations(frames) == server.expected
    return b"".join(each[25:26] for each in frames)


def test_a_relation_that_was_replaced_meanwhile_is_passed_on_again_after_the_older_one() -> None:
    server = Server()
    server.stream(0, [0])
    server.alter(OIDS[0])
    server.small([0])
    server.decide(0, commits=True)
    server.small([0])
    assert kinds_of(server) == b"BRIC" + b"BRIC" + b"BRIC"


def test_what_the_blocks_of_a_transaction_announced_is_announced_to_all_when_it_commits() -> None:
    server = Server()
    server.small([0])
    server.alter(OIDS[0])
    server.stream(0, [0])
    server.decide(0, commits=True)
    server.small([0])
    assert kinds_of(server) == b"BRIC" + b"BRIC" + b"BIC"
