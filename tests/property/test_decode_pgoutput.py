"""The vectorised decoder and the plain row-wise one agree on any stream a server could send, cut anywhere."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.decode.pgoutput import tuples
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from tests.support import plain_pgoutput as plain
from tests.support.decode_compare import assert_same
from tests.support.plain_pgoutput import UNCHANGED

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
LONG = st.integers(200, 70_000).map(lambda size: "lång " * (size // 6))
OLD_VALUES = st.one_of(st.none(), TEXT, TEXT, TEXT)
NEW_VALUES = st.one_of(OLD_VALUES, OLD_VALUES, st.just(UNCHANGED))
LSN = st.integers(1, 2**62)
TIME = st.integers(0, 2**50)


@dataclass
class Script:
    """Draws a stream message by message, keeping to the protocol's order."""

    data: st.DataObject
    relations: dict[int, Relation] = field(default_factory=dict)
    frames: list[bytes] = field(default_factory=list)

    def draw(self, strategy):
        return self.data.draw(strategy)

    def send(self, payload: bytes, lsn: int | None = None) -> None:
        self.frames.append(plain.frame(payload, self.draw(LSN) if lsn is None else lsn))

    def announce(self, oid: int) -> None:
        columns = tuple(
            RelationColumn(name, self.draw(st.integers(1, 2**32 - 1)), self.draw(st.integers(-1, 2**31 - 1)), key)
            for name, key in self.draw(st.lists(st.tuples(NAMES, st.booleans()), max_size=4))
        )
        identity = self.draw(st.sampled_from(ReplicaIdentity))
        # The name stays with the OID, so that truncated tables can be told by name.
        self.relations[oid] = Relation(oid, f"s{oid}", "t", identity, columns)
        if self.draw(st.booleans()):
            self.send(plain.type_message(oid, "public", self.draw(NAMES)), 0)
        self.send(plain.relation_message(self.relations[oid]), 0)

    def values(self, strategy, relation: Relation):
        values = [self.draw(strategy) for _ in relation.columns]
        if values and self.draw(st.integers(0, 40)) == 0:
            values[0] = self.draw(LONG)
        return values

    def row(self) -> None:
        oid = self.draw(st.sampled_from([1, 16_384, 2**32 - 1]))
        if oid not in self.relations or self.draw(st.integers(0, 9)) == 0:
            self.announce(oid)
        relation = self.relations[oid]
        kind = self.draw(st.sampled_from("IIIUUKOkoT"))
        old, new = self.values(OLD_VALUES, relation), self.values(NEW_VALUES, relation)
        payload = {
            "I": lambda: plain.insert(oid, new),
            "U": lambda: plain.update(oid, new),
            "K": lambda: plain.update(oid, new, old, "K"),
            "O": lambda: plain.update(oid, new, old, "O"),
            "k": lambda: plain.delete(oid, old, "K"),
            "o": lambda: plain.delete(oid, old, "O"),
            "T": lambda: plain.truncate(list(self.relations), self.draw(st.integers(0, 3))),
        }[kind]()
        self.send(payload)

    def transaction(self, finished: bool = True) -> None:
        commit_lsn, ts = self.draw(LSN), self.draw(TIME)
        self.send(plain.begin(commit_lsn, ts, self.draw(st.integers(1, 2**32 - 1))))
        if self.draw(st.integers(0, 3)) == 0:
            self.send(plain.origin(self.draw(LSN), self.draw(NAMES)), 0)
        for _ in range(self.draw(st.integers(0, 5))):
            if self.draw(st.integers(0, 7)) == 0:
                self.send(plain.message(self.draw(LSN), self.draw(TEXT), self.draw(st.binary(max_size=9)), True))
            self.row()
        if finished:
            self.send(plain.commit(commit_lsn, self.draw(LSN), ts))

    def stream(self) -> list[bytes]:
        for _ in range(self.draw(st.integers(0, 4))):
            if self.draw(st.integers(0, 3)) == 0:
                self.send(plain.message(self.draw(LSN), self.draw(TEXT), self.draw(st.binary(max_size=9)), False))
            self.transaction()
        if self.draw(st.booleans()):
            self.transaction(finished=False)
        return self.frames


@given(st.data())
def test_any_stream_cut_anywhere_decodes_as_the_plain_decoder_says(data):
    frames = Script(data).stream()
    cuts = data.draw(st.lists(st.integers(0, len(frames)), max_size=4))
    uncaptured = data.draw(st.sampled_from([frozenset(), frozenset({16_384}), frozenset({1, 2**32 - 1})]))
    max_bytes = data.draw(st.sampled_from([1, 300, 2**31 - 1]))
    assert_same(frames, cuts, uncaptured, max_bytes)


@given(st.data(), st.integers(1, 3), st.sampled_from([1, 60, 1 << 24]))
def test_the_size_of_the_chunks_changes_nothing(data, rows, size):
    frames = Script(data).stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuples, "CHUNK_ROWS", rows)
        patch.setattr(tuples, "CHUNK_BYTES", size)
        assert_same(frames)
