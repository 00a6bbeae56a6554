"""pgoutput and COPY text the slow way: one message, one value at a time. The oracle of cdc_core/decode, and a builder.

Written from the PostgreSQL manual alone (§55.9, COPY), sharing no code with the product.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from cdc_core.schema.relation import Relation

EPOCH_US = 946_684_800_000_000


class Unchanged:
    """The value of a TOAST column that the server did not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()
Value = str | bytes | None | Unchanged


# ------------------------------------------------------------------------------------------------ builder
def frame(payload: bytes, lsn: int = 0, wal_end: int | None = None) -> bytes:
    return struct.pack("!cqqq", b"w", lsn, lsn if wal_end is None else wal_end, 0) + payload


def begin(commit_lsn: int, ts_us: int, xid: int) -> bytes:
    return struct.pack("!cqqI", b"B", commit_lsn, ts_us - EPOCH_US, xid)


def commit(commit_lsn: int, end_lsn: int, ts_us: int, flags: int = 0) -> bytes:
    return struct.pack("!cBqqq", b"C", flags, commit_lsn, end_lsn, ts_us - EPOCH_US)


def origin(lsn: int, name: str) -> bytes:
    return struct.pack("!cq", b"O", lsn) + name.encode() + b"\0"


def type_message(oid: int, namespace: str, name: str) -> bytes:
    return struct.pack("!cI", b"Y", oid) + namespace.encode() + b"\0" + name.encode() + b"\0"


def relation_message(relation: Relation) -> bytes:
    namespace = "" if relation.namespace == "pg_catalog" else relation.namespace
    out = struct.pack("!cI", b"R", relation.oid) + namespace.encode() + b"\0" + relation.name.encode() + b"\0"
    out += relation.identity.value.encode() + struct.pack("!H", len(relation.columns))
    for column in relation.columns:
        out += bytes([int(column.is_identity)]) + column.name.encode() + b"\0"
        out += struct.pack("!Ii", column.type_oid, column.type_modifier)
    return out


def tuple_data(values: list[Value]) -> bytes:
    out = struct.pack("!H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif isinstance(value, Unchanged):
            out += b"u"
        else:
            raw = value.encode() if isinstance(value, str) else value
            out += b"t" + struct.pack("!I", len(raw)) + raw
    return out


def insert(oid: int, new: list[Value]) -> bytes:
    return struct.pack("!cI", b"I", oid) + b"N" + tuple_data(new)


def update(oid: int, new: list[Value], old: list[Value] | None = None, mark: str = "O") -> bytes:
    before = b"" if old is None else mark.encode() + tuple_data(old)
    return struct.pack("!cI", b"U", oid) + before + b"N" + tuple_data(new)


def delete(oid: int, old: list[Value], mark: str = "K") -> bytes:
    return struct.pack("!cI", b"D", oid) + mark.encode() + tuple_data(old)


def truncate(oids: list[int], options: int = 0) -> bytes:
    return struct.pack("!cIB", b"T", len(oids), options) + b"".join(struct.pack("!I", oid) for oid in oids)


def message(lsn: int, prefix: str, content: bytes, transactional: bool) -> bytes:
    head = struct.pack("!cBq", b"M", int(transactional), lsn)
    return head + prefix.encode() + b"\0" + struct.pack("!I", len(content)) + content


# ------------------------------------------------------------------------------------------------ decoder
@dataclass
class PlainRow:
    seq: int
    lsn: int
    commit_lsn: int
    tx_index: int
    prior_end_lsn: int
    xid: int
    commit_ts_us: int
    origin: str | None
    origin_lsn: int | None
    relation: Relation
    op: str
    old_kind: str
    new: list[Value] | None
    old: list[Value] | None


@dataclass
class PlainStream:
    """Feed it frames in order; it collects what they say."""

    rows: list[PlainRow] = field(default_factory=list)
    truncates: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)
    marks: list[tuple[Any, ...]] = field(default_factory=list)
    relations: dict[int, Any] = field(default_factory=dict)
    described: list[tuple[str, int]] = field(default_factory=list)
    seq: int = 0
    prior: int = 0
    last_ts: int = 0
    origin: tuple[str | None, int | None] = (None, None)
    open: dict[str, Any] | None = None

    def feed(self, raw: bytes) -> None:
        assert raw[:1] == b"w"
        (lsn,) = struct.unpack("!q", raw[1:9])
        self._message(lsn, raw[25:])
        self.seq += 1

    def _message(self, lsn: int, payload: bytes) -> None:
        kind, body = chr(payload[0]), payload[1:]
        if kind == "B":
            assert self.open is None
            commit_lsn, ts, xid = struct.unpack("!qqI", body)
            self.last_ts, self.origin = ts + EPOCH_US, (None, None)
            self.open = {"commit_lsn": commit_lsn, "ts": ts + EPOCH_US, "xid": xid, "next": 0, "origin": (None, None)}
            self.marks.append((self.seq, "B", lsn, xid, commit_lsn, None, ts + EPOCH_US))
        elif kind == "C":
            assert self.open is not None
            _, commit_lsn, end_lsn, _ = struct.unpack("!Bqqq", body)
            assert commit_lsn == self.open["commit_lsn"]
            self.marks.append((self.seq, "C", lsn, self.open["xid"], commit_lsn, end_lsn, self.open["ts"]))
            self.prior, self.open = end_lsn, None
        elif kind == "O":
            assert self.open is not None
            self.origin = self.open["origin"] = (body[8:-1].decode(), struct.unpack("!q", body[:8])[0])
        elif kind == "R":
            relation = plain_relation(payload)
            self.relations[relation.oid] = relation
        elif kind == "M":
            self._logical(lsn, body)
        elif kind in "IUDT":
            assert self.open is not None
            if kind == "T":
                count, options = struct.unpack("!IB", body[:5])
                oids = struct.unpack(f"!{count}I", body[5:])
                self.truncates.append((*self._facts(lsn), tuple(str(self.relations[oid]) for oid in oids), options))
            else:
                self._row(lsn, kind, body)
            self.open["next"] += 1
        else:
            assert kind == "Y"

    def _facts(self, lsn: int) -> tuple[Any, ...]:
        tx = self.open
        assert tx is not None
        return (self.seq, lsn, tx["commit_lsn"], tx["next"], self.prior, tx["xid"], tx["ts"], *tx["origin"])

    def _row(self, lsn: int, kind: str, body: bytes) -> None:
        (oid,) = struct.unpack("!I", body[:4])
        at, old_kind, old, new = 4, "", None, None
        if chr(body[at]) in "KO":
            old_kind = chr(body[at])
            old, at = _plain_tuple(body, at + 1)
        if kind != "D":
            assert body[at : at + 1] == b"N"
            new, at = _plain_tuple(body, at + 1)
        assert at == len(body)
        self.rows.append(PlainRow(*self._facts(lsn), self.relations[oid], kind, old_kind, new, old))

    def _logical(self, lsn: int, body: bytes) -> None:
        flags, _ = struct.unpack("!Bq", body[:9])
        prefix, rest = body[9:].split(b"\0", 1)
        (length,) = struct.unpack("!I", rest[:4])
        content = rest[4:]
        assert len(content) == length
        if flags:
            assert self.open is not None
            facts = self._facts(lsn)
        else:
            self.prior = lsn
            facts = (self.seq, lsn, None, None, lsn, None, self.last_ts, *self.origin)
        self.messages.append((*facts, bool(flags), prefix.decode(), content))


def plain_relation(payload: bytes) -> Relation:
    from cdc_core.schema.relation import RelationColumn, ReplicaIdentity

    (oid,) = struct.unpack("!I", payload[1:5])
    namespace, name, rest = payload[5:].split(b"\0", 2)
    identity = ReplicaIdentity(chr(rest[0]))
    (count,) = struct.unpack("!H", rest[1:3])
    rest = rest[3:]
    columns = []
    for _ in range(count):
        flags, tail = rest[0], rest[1:]
        column, tail = tail.split(b"\0", 1)
        type_oid, modifier = struct.unpack("!Ii", tail[:8])
        columns.append(RelationColumn(column.decode(), type_oid, modifier, bool(flags & 1)))
        rest = tail[8:]
    assert not rest
    return Relation(oid, namespace.decode() or "pg_catalog", name.decode(), identity, tuple(columns))


def _plain_tuple(body: bytes, at: int) -> tuple[list[Value], int]:
    (count,) = struct.unpack("!H", body[at : at + 2])
    at += 2
    values: list[Value] = []
    for _ in range(count):
        kind = chr(body[at])
        at += 1
        if kind == "n":
            values.append(None)
        elif kind == "u":
            values.append(UNCHANGED)
        else:
            assert kind == "t"
            (length,) = struct.unpack("!I", body[at : at + 4])
            values.append(body[at + 4 : at + 4 + length].decode())
            at += 4 + length
    return values, at


# ------------------------------------------------------------------------------------------------ COPY text
_ESCAPES = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\"}
_UNESCAPES = {escaped[1]: char for char, escaped in _ESCAPES.items()}


def copy_line(values: list[str | None]) -> bytes:
    """One line as COPY TO writes it."""
    fields = ("\\N" if value is None else "".join(_ESCAPES.get(char, char) for char in value) for value in values)
    return "\t".join(fields).encode() + b"\n"


def plain_copy(data: bytes) -> list[list[str | None]]:
    """The lines of COPY text, as COPY FROM would read them (without numeric escapes)."""
    lines = data.decode().split("\n")
    assert lines.pop() == ""
    return [[None if text == "\\N" else _unescape(text) for text in line.split("\t")] for line in lines]


def _unescape(text: str) -> str:
    out, chars = [], iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        follower = next(chars)
        out.append(_UNESCAPES.get(follower, follower))
    return "".join(out)
