"""Writes pgoutput's messages from columns: the inverse of ``tuples``, for plug-ins that are translated to pgoutput.

All functions return the frames of N messages as binary[N], each with the header of the frame that it replaces.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.clock import POSTGRES_EPOCH_US
from cdc_core.decode.pgoutput.relation import relation_message
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.decode.segment import FRAME_HEADER, Segment
from cdc_core.schema import Relation

_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_KINDS = np.array([ord("O"), ord("K")], dtype=np.uint8)
_NEW = ord("N")


def headers(lsn: np.ndarray) -> np.ndarray:
    """Return XLogData headers, uint8[N, 25], with these WAL starts."""
    out = np.zeros((len(lsn), FRAME_HEADER), dtype=np.uint8)
    out[:, 0] = ord("w")
    octets = lsn.astype(">i8").view(np.uint8).reshape(len(lsn), 8)
    out[:, 1:9], out[:, 9:17] = octets, octets
    return out


def begins(lsn: np.ndarray, commit_lsn: np.ndarray, commit_ts_us: np.ndarray, xid: np.ndarray) -> pa.Array:
    """Begin messages; times in microseconds since 1970-01-01T00:00:00Z."""
    return _fixed(
        lsn,
        [("kind", "S1", b"B"), ("lsn", ">i8", commit_lsn), ("ts", ">i8", commit_ts_us - POSTGRES_EPOCH_US),
         ("xid", ">u4", xid)],
    )  # fmt: skip


def commits(lsn: np.ndarray, commit_lsn: np.ndarray, end_lsn: np.ndarray, commit_ts_us: np.ndarray) -> pa.Array:
    """Commit messages; times as in ``begins``."""
    return _fixed(
        lsn,
        [("kind", "S1", b"C"), ("flags", "u1", 0), ("lsn", ">i8", commit_lsn), ("end", ">i8", end_lsn),
         ("ts", ">i8", commit_ts_us - POSTGRES_EPOCH_US)],
    )  # fmt: skip


def relation_frame(relation: Relation) -> bytes:
    """A Relation message, with LSN 0 as the server sends it."""
    return headers(np.zeros(1, dtype=np.int64)).tobytes() + relation_message(relation)


def truncate_frame(lsn: int, oids: Sequence[int]) -> bytes:
    """A Truncate message of these relations."""
    return _header(lsn) + struct.pack(f"!cIB{len(oids)}I", b"T", len(oids), 0, *oids)


def message_frame(lsn: int, prefix: str, content: bytes, *, transactional: bool) -> bytes:
    """A logical message."""
    head = struct.pack("!cBq", b"M", int(transactional), lsn)
    return _header(lsn) + head + prefix.encode() + b"\0" + struct.pack("!I", len(content)) + content


def rows(
    lsn: np.ndarray,
    op: int,
    relation: Relation,
    new: RawColumns | None,
    old: RawColumns | None,
    is_key: np.ndarray | None = None,
) -> pa.Array:
    """Row messages of one kind (``op``: I, U or D) that all have the same tuples, N of them.

    Shape: ``new`` and ``old`` have N rows and the relation's columns in its order; ``is_key[N]`` (bool) tells old
    tuples of the key only from entire old rows.

    Nulls: a null of ``text`` is SQL NULL, or an unchanged TOAST value where ``unchanged`` is true.
    """
    count = len(lsn)
    start = np.concatenate([headers(lsn), np.tile(_bytes(struct.pack("!BI", op, relation.oid)), (count, 1))], axis=1)
    pieces: list[pa.Array] = []
    width = struct.pack("!H", len(relation.columns))
    if old is not None:
        kinds = _KINDS[np.ones(count, dtype=np.int8) if is_key is None else is_key.astype(np.int8)]
        start = np.concatenate([start, kinds[:, None], np.tile(_bytes(width), (count, 1))], axis=1)
        pieces += _pieces(old)
    if new is not None:
        mark = bytes([_NEW]) + width
        if old is None:
            start = np.concatenate([start, np.tile(_bytes(mark), (count, 1))], axis=1)
        else:
            pieces.append(pa.scalar(mark, pa.binary()))
        pieces += _pieces(new)
    if not pieces:
        return _matrix(start)
    return pc.binary_join_element_wise(_matrix(start), *pieces, pa.scalar(b"", pa.binary()))


def uncaptured(lsn: np.ndarray, oids: np.ndarray) -> pa.Array:
    """Inserts without columns, in place of rows of tables that are not captured: they keep their index."""
    return _fixed(lsn, [("kind", "S1", b"I"), ("oid", ">u4", oids), ("mark", "S1", b"N"), ("width", ">u2", 0)])


def deletes_of_unknown(lsn: np.ndarray, relation: Relation) -> pa.Array:
    """Deletes without a tuple, which pgoutput itself never sends: which row was deleted or updated is not known."""
    return _fixed(lsn, [("kind", "S1", b"D"), ("oid", ">u4", relation.oid), ("mark", "S1", b"-"), ("width", ">u2", 0)])


def segments_of(frames: pa.Array, most_bytes: int) -> list[Segment]:
    """Return frames as segments of at most ``most_bytes``; a single frame may be larger."""
    if len(frames) == 0:
        return []
    _, offsets, content = frames.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[frames.offset : frames.offset + len(frames) + 1].astype(np.int64)
    data = content if content is not None else pa.py_buffer(b"")
    out, first = [], 0
    while first < len(frames):
        last = max(int(np.searchsorted(bounds, bounds[first] + most_bytes, side="right")) - 1, first + 1)
        low, high = int(bounds[first]), int(bounds[last])
        out.append(Segment(data.slice(low, high - low).to_pybytes(), bounds[first + 1 : last + 1] - low))
        first = last
    return out


def _header(lsn: int) -> bytes:
    return headers(np.array([lsn], dtype=np.int64)).tobytes()


def _bytes(text: bytes) -> np.ndarray:
    return np.frombuffer(text, dtype=np.uint8)


def _pieces(columns: RawColumns) -> list[pa.Array]:
    """Return prefix and value of each column in turn, without nulls."""
    out: list[pa.Array] = []
    for text, unchanged in zip(columns.text, columns.unchanged, strict=True):
        values = text.cast(pa.binary())
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False).astype(np.uint32)
        prefix = np.empty((len(values), 5), dtype=np.uint8)
        prefix[:, 0] = _TEXT
        prefix[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
        if values.null_count == 0:
            out += [_matrix(prefix), values]
            continue
        null = values.is_null().to_numpy(zero_copy_only=False)
        prefix[null, 0] = _NULL
        if unchanged is not None:
            prefix[unchanged, 0] = _UNCHANGED
        sizes = np.where(null, 1, 5)
        used = np.arange(5) < sizes[:, None]
        ends = np.zeros(len(values) + 1, dtype=np.int32)
        np.cumsum(sizes, out=ends[1:])
        out += [_binary(ends, prefix[used]), values.fill_null(b"")]
    return out


def _matrix(octets: np.ndarray) -> pa.Array:
    count, width = octets.shape
    return _binary(np.arange(count + 1, dtype=np.int32) * np.int32(width), np.ascontiguousarray(octets))


def _binary(ends: np.ndarray, data: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _fixed(lsn: np.ndarray, fields: Sequence[tuple[str, str, object]]) -> pa.Array:
    body = np.zeros(len(lsn), dtype=[(name, kind) for name, kind, _ in fields])
    for name, _, values in fields:
        body[name] = values
    octets = body.view(np.uint8).reshape(len(lsn), body.dtype.itemsize)
    return _matrix(np.concatenate([headers(lsn), octets], axis=1))
