"""Translates a stream of decoderbufs to pgoutput's messages.

A transaction's rows follow its BEGIN, and the LSN of its commit is known at its COMMIT only, so a transaction is kept
until then (``held``). The plug-in sends the end of the commit record (the COMMIT's own LSN), not its start; the last
byte of the record takes the start's place: it lies between the two, so that it compares in the same way with every
position between two records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from cdc_core.decode.byte_reader import ByteReader
from cdc_core.decode.decoderbufs.message import BEGIN, COMMIT, DELETE, INSERT, UPDATE
from cdc_core.decode.decoderbufs.rows import ProtobufRowPlaces, decode, table_of
from cdc_core.decode.gather import gather_binary
from cdc_core.decode.held import HeldSegments
from cdc_core.decode.pgoutput import write
from cdc_core.decode.plugin import Relations
from cdc_core.decode.row_writer import MOST_BYTES, Pieces, RowGroup, RowGroupWriter
from cdc_core.decode.segment import FRAME_HEADER, Segment, grouped
from cdc_core.decode.wire import Wire
from cdc_core.errors import ProtocolError

_XID_TAG, _TIME_TAG, _TABLE_TAG, _OP_TAG = 0x08, 0x10, 0x1A, 0x20


@dataclass(frozen=True, slots=True)
class _Heads:
    """The first fields of N messages: ``table_starts``, ``table_ends`` are equal without a table; ``rest[N]`` is where
    the tuples begin.
    """

    lsn: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    xid: np.ndarray
    time_us: np.ndarray
    op: np.ndarray
    table_starts: np.ndarray
    table_ends: np.ndarray
    rest: np.ndarray


class DecoderbufsTranslator:
    """As ``Translator``. ``folder``: where large transactions are kept."""

    def __init__(self, relations: Relations, folder: Path | None = None) -> None:
        self._writer = RowGroupWriter(relations)
        self._held = HeldSegments(folder)
        # LSN, xid and commit time of the BEGIN of the transaction that is kept.
        self._begun: tuple[int, int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction is kept."""
        return self._begun is not None

    def close(self) -> None:
        """Remove the file of a large transaction."""
        self._held.close()

    def feed(self, segment: Segment) -> Iterator[Segment]:
        """Return the transactions that are complete; ``Translator.feed``."""
        if not len(segment):
            return
        wire, heads = _heads(segment)
        begins, commits = np.flatnonzero(heads.op == BEGIN), np.flatnonzero(heads.op == COMMIT)
        pieces = Pieces()
        # Formats are announced in the order of the rows, also of rows that are kept.
        self._writer.write(list(_groups(wire, heads)), pieces)
        _mark(heads, begins, commits, pieces)
        if not len(commits):
            self._keep(pieces.segments()[0], heads, begins)
            return
        done, begun = pieces.segments(int(commits[-1]) + 1)
        if self._begun is not None:
            lsn, xid, time_us = self._begun
            commit_lsn = int(heads.lsn[commits[0]]) - 1
            scalars = [np.array([value], dtype=np.int64) for value in (lsn, commit_lsn, time_us, xid)]
            begin = write.segments_of(write.begins(*scalars), MOST_BYTES)
            yield from grouped(chain(begin, self._held.take(), done), MOST_BYTES)
            self._begun = None
        else:
            yield from done
        self._keep(begun, heads, begins[begins > commits[-1]])

    def _keep(self, segments: list[Segment], heads: _Heads, begins: np.ndarray) -> None:
        for segment in segments:
            self._held.add(segment)
        if len(begins):
            at = int(begins[-1])
            self._begun = int(heads.lsn[at]), int(heads.xid[at]), int(heads.time_us[at])
        elif self._begun is None and len(self._held):
            raise ProtocolError("", int(heads.lsn[0]), "a BEGIN before rows", "none")


def _heads(segment: Segment) -> tuple[Wire, _Heads]:
    data = np.frombuffer(segment.buffer, dtype=np.uint8)
    ends = np.asarray(segment.ends, dtype=np.int64)
    frames = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    wire, lsn = Wire(data), ByteReader(data).i64(frames + 1)
    starts = frames + FRAME_HEADER
    good = wire.u8(wire.inside(starts)) == _XID_TAG
    xid, at = wire.numbers(wire.inside(starts + 1))
    good &= wire.u8(at) == _TIME_TAG
    time_us, at = wire.numbers(wire.inside(at + 1))
    has_table = wire.u8(at) == _TABLE_TAG
    size, table_starts = wire.numbers(wire.inside(at + 1))
    table_starts = np.where(has_table, table_starts, at)
    table_ends = np.where(has_table, wire.inside(table_starts + size), at)
    good &= wire.u8(table_ends) == _OP_TAG
    op, rest = wire.numbers(wire.inside(table_ends + 1))
    good &= (rest <= ends) & (op >= INSERT) & (op <= COMMIT) & (has_table == (op <= DELETE))
    if not good.all():
        at = int(np.argmin(good))
        raise ProtocolError("", int(lsn[at]), "a message as decoderbufs writes it", "another")
    return wire, _Heads(lsn, starts, ends, xid, time_us, op, table_starts, table_ends, rest)


def _groups(wire: Wire, heads: _Heads) -> Iterator[RowGroup]:
    rows = np.flatnonzero(heads.op <= DELETE)
    if not len(rows):
        return
    names = gather_binary(wire.data, heads.table_starts[rows], heads.table_ends[rows]).dictionary_encode()
    of_table = names.indices.to_numpy()
    for number, name in enumerate(names.dictionary.to_pylist()):  # row-wise: once a table
        try:
            table = table_of(name.decode())
        except ValueError:
            raise ProtocolError("", int(heads.lsn[rows[0]]), "a qualified name of a table", "another text") from None
        for op in (INSERT, UPDATE, DELETE):
            at = rows[(of_table == number) & (heads.op[rows] == op)]
            if len(at):
                places = ProtobufRowPlaces(
                    table, op, at, heads.lsn[at], heads.starts[at], heads.rest[at], heads.ends[at]
                )
                yield from decode(wire, places)


def _mark(heads: _Heads, begins: np.ndarray, commits: np.ndarray, pieces: Pieces) -> None:
    """Add the Begins whose commit is in the segment, and all Commits."""
    following = np.searchsorted(commits, begins)
    begins, following = begins[following < len(commits)], following[following < len(commits)]
    commit_lsn = heads.lsn[commits] - 1
    pieces.add(
        begins,
        write.begins(heads.lsn[begins], commit_lsn[following], heads.time_us[begins], heads.xid[begins]),
    )
    pieces.add(commits, write.commits(heads.lsn[commits], commit_lsn, heads.lsn[commits], heads.time_us[commits]))
