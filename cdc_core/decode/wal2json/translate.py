"""Translates a stream of wal2json to pgoutput's messages.

Format 2 has a message for the beginning and the end of a transaction, with the LSN of its commit record in both. Format
1 is requested in chunks: a message begins the transaction's JSON, one follows for each row, and one closes it. It has
the end of the commit record; the record's last byte takes the start's place (as in ``decoderbufs.translate``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from cdc_core.decode.byte_reader import ByteReader
from cdc_core.decode.pgoutput import write
from cdc_core.decode.plugin import Relations
from cdc_core.decode.row_writer import Pieces, RowGroup, RowGroupWriter
from cdc_core.decode.segment import FRAME_HEADER, Segment
from cdc_core.decode.wal2json.json_bytes import JsonBytes, leaves, plain
from cdc_core.decode.wal2json.rows import JsonRowPlaces, decode
from cdc_core.errors import ProtocolError
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId

_ACTION, _KIND = b'{"action":"', b'{"kind":"'
_END, _OUTSIDE = b"]}", b'{"change":['
_COMMA = ord(",")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = np.zeros(256, dtype=bool)
_ROWS[list(b"IUDiud")] = True
# In place of a change that was left out (``cdc_core.postgres.replication.plugin``).
_LEFT_OUT = ord("?")
_BEGIN_1, _END_1, _OUTSIDE_1 = ord("{"), ord("]"), ord("[")


@dataclass(frozen=True, slots=True)
class _Commit:
    """Where a transaction commits: start and end of the commit record, its xid, microseconds since 1970."""

    lsn: int
    end_lsn: int
    xid: int
    ts_us: int


class Wal2JsonTranslator:
    """As ``Translator``, of both formats; nothing is kept."""

    is_open = False

    def __init__(self, relations: Relations) -> None:
        self._relations = relations
        self._writer = RowGroupWriter(relations)
        self._begun: _Commit | None = None

    def close(self) -> None:
        """Nothing is kept."""

    def feed(self, segment: Segment) -> Iterator[Segment]:
        """Return the same messages as pgoutput's; ``Translator.feed``."""
        if not len(segment):
            return
        buffer = np.frombuffer(segment.buffer, dtype=np.uint8)
        ends = np.asarray(segment.ends, dtype=np.int64)
        frames = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
        data, lsn = JsonBytes(buffer), ByteReader(buffer).i64(frames + 1)
        starts, kinds = _kinds(data, frames + FRAME_HEADER)
        pieces = Pieces()
        truncates: list[tuple[int, TableId]] = []
        groups: list[RowGroup] = []
        # row-wise: one or two messages a transaction are not rows
        for at in np.flatnonzero(~_ROWS[kinds]).tolist():
            text = data.data[int(starts[at]) : int(ends[at])].tobytes()
            try:
                if kinds[at] == _LEFT_OUT:
                    groups += self._left_out(text, at, int(lsn[at]))
                    continue
                frame = self._other(int(kinds[at]), text, int(lsn[at]), at, truncates)
            except (ValueError, LookupError):
                raise ProtocolError("", int(lsn[at]), "a message as wal2json writes it", "other text") from None
            if frame is not None:
                pieces.add(np.array([at]), frame)
        rows = np.flatnonzero(_ROWS[kinds])
        groups += decode(data, JsonRowPlaces(rows, lsn[rows], starts[rows], ends[rows]))
        self._writer.write(groups, pieces, truncates)
        yield from pieces.segments()[0]

    def _other(
        self, kind: int, text: bytes, lsn: int, at: int, truncates: list[tuple[int, TableId]]
    ) -> pa.Array | None:
        """Return the frame of one message that is not a row."""
        if kind == _END_1:
            return self._committed(lsn)
        if kind == _BEGIN_1:
            # The first chunk ends in an open array.
            values = _values(text + _END)
            end = int(Lsn.parse(values["nextlsn"]))
            begun = _Commit(end - 1, end, int(values["xid"]), _microseconds(values["timestamp"]))
            return self._began(lsn, begun)
        values = _values(text[len(_OUTSIDE) : -len(_END)] if kind == _OUTSIDE_1 else text)
        if kind == ord("B"):
            return self._began(lsn, _commit(values))
        if kind == ord("C"):
            self._begun = _commit(values)
            return self._committed(lsn)
        if kind == ord("T"):
            table = TableId(values["schema"], values["table"])
            truncates.append((at, table))
            return _one(write.truncate_frame(lsn, [self._writer.oid(table)]))
        is_inside = values["transactional"] == "true"
        return _one(write.message_frame(lsn, values["prefix"], values["content"].encode(), transactional=is_inside))

    def _left_out(self, text: bytes, at: int, lsn: int) -> list[RowGroup]:
        """Return deletes of an unknown row for a change that the plug-in left out.

        Format 1 does not name the schema: then each table of the name may be the one.
        """
        values = _values(text)
        known = "table" in values
        tables = [TableId(values["schema"], values["table"])] if known else self._relations.named(values["name"])
        place = np.array([at]), np.array([lsn])
        return [RowGroup(table, ord("D"), *place, (), is_complete=False, new=None, old=None) for table in tables]

    def _began(self, lsn: int, begun: _Commit) -> pa.Array:
        self._begun = begun
        return write.begins(*(np.array([each], dtype=np.int64) for each in (lsn, begun.lsn, begun.ts_us, begun.xid)))

    def _committed(self, lsn: int) -> pa.Array:
        found = self._begun
        if found is None:
            raise ValueError("an end without a beginning")
        self._begun = None
        facts = (lsn, found.lsn, found.end_lsn, found.ts_us)
        return write.commits(*(np.array([each], dtype=np.int64) for each in facts))


def _kinds(data: JsonBytes, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each message's JSON begins, and a letter for its kind; those of format 1's rows are lower case."""
    is_second = data.matches(starts, _ACTION)
    kinds = data.u8(data.inside(starts + len(_ACTION)))
    if is_second.all():
        return starts, kinds
    starts = starts + (data.u8(starts) == _COMMA)
    is_row = data.matches(starts, _KIND)
    first = np.where(data.matches(starts, _OUTSIDE), _OUTSIDE_1, data.u8(starts))
    letters = np.where(is_row, data.u8(data.inside(starts + len(_KIND))), first)
    return starts, np.where(is_second, kinds, letters)


def _values(text: bytes) -> dict[str, str]:
    return {str(path[0]): plain(text[start:end]) for path, start, end in leaves(text) if len(path) == 1}


def _commit(values: dict[str, str]) -> _Commit:
    lsn, end = (int(Lsn.parse(values[name])) for name in ("lsn", "nextlsn"))
    return _Commit(lsn, end, int(values["xid"]), _microseconds(values["timestamp"]))


def _microseconds(text: str) -> int:
    """Return microseconds since 1970 of a timestamp in ISO's form with its offset."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def _one(frame: bytes) -> pa.Array:
    return pa.array([frame], pa.binary())
