"""Assigns every message to its transaction and to its index in it, which together are its position.

A message contains no data of its transaction. Begin contains commit LSN, xid and commit time, Commit ends it, and
protocol version 1 never interleaves two. So a running count of the Begins is an index into the transactions of the
segment, and every fact is one array lookup. Element 0 of the per-transaction arrays is the transaction that was open
when the segment began; a segment may end anywhere, and a transaction left open is part of the next one's state.

A position is (commit LSN, index among the row messages of the transaction). After a reconnect the server sends a
transaction again from its Begin, so counting from 0 at Begin results in the same number at every replay. Messages of
tables that are not captured are counted too: capturing another table changes no position of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode.gather import as_text, gather_binary
from cdc_core.decode.pgoutput.frames import (
    BEGIN,
    COMMIT,
    DELETE,
    INSERT,
    MESSAGE,
    ORIGIN,
    TRUNCATE,
    UPDATE,
    Frames,
)
from cdc_core.decode.pgoutput.stream_state import MARK_SCHEMA, OpenTransaction, StreamState

# PostgreSQL counts microseconds from 2000-01-01, wal2lake from 1970-01-01.
EPOCH_US = 946_684_800_000_000
_LAST_TIME_US = 2**63 - 1 - EPOCH_US

_IS_ROW = np.zeros(256, dtype=bool)
_IS_ROW[[INSERT, UPDATE, DELETE, TRUNCATE]] = True
_IS_INSIDE = _IS_ROW.copy()  # kinds that are valid only inside a transaction
_IS_INSIDE[ORIGIN] = True


@dataclass(frozen=True, slots=True)
class Origins:
    """The Origin messages: ``name`` (string) and ``lsn`` of each, and the one in force for each frame.

    ``of_frame`` is an index into them for every frame of the segment, -1 for none. Index 0 is the origin of the
    transaction open at the start of the segment, if it has one.
    """

    name: pa.Array
    lsn: np.ndarray
    of_frame: np.ndarray


@dataclass(frozen=True, slots=True)
class Transactions:
    """Facts of the segment's N frames. ``ordinal[N]`` is an index into the per-transaction arrays.

    ``tx_index[N]``: for a row message its index in the transaction, for others that of the next row message.
    ``prior_end_lsn[N]``: see StreamState. ``origins`` is None if no frame has one. ``messages`` are the frames of
    logical messages, ``transactional`` (bool) distinguishes their two kinds.
    """

    ordinal: np.ndarray
    commit_lsn: np.ndarray
    commit_ts_us: np.ndarray
    xid: np.ndarray
    tx_index: np.ndarray
    prior_end_lsn: np.ndarray
    origins: Origins | None
    begins: np.ndarray
    commits: np.ndarray
    commit_end_lsn: np.ndarray
    messages: np.ndarray
    transactional: np.ndarray
    is_row: np.ndarray
    open_at_end: bool


def find_transactions(frames: Frames, state: StreamState) -> Transactions:
    """Assign every frame to its transaction.

    Raises ProtocolError if a row, Origin or transactional message is outside a transaction, a Begin inside one, a
    Commit outside one or not matching its Begin, or a Begin or Commit has a wrong length.
    """
    reader, kinds, starts = frames.reader, frames.kinds, frames.starts
    is_begin, is_commit = kinds == BEGIN, kinds == COMMIT
    begins, commits = np.flatnonzero(is_begin), np.flatnonzero(is_commit)
    messages = np.flatnonzero(kinds == MESSAGE)
    transactional = _transactional(frames, messages)
    ordinal = np.cumsum(is_begin)
    open_at_end = _check_nesting(frames, state, is_begin, is_commit, messages[transactional])
    _check_lengths(frames, begins, commits)
    carried = state.open
    at = starts[begins]
    commit_lsn = _prepend(carried.commit_lsn if carried else 0, reader.i64(at + 1))
    commit_time = reader.i64(at + 9)
    frames.require(commit_time <= _LAST_TIME_US, "a commit time of PostgreSQL's range", "a later one", begins)
    commit_ts = _prepend(carried.commit_ts_us if carried else state.last_commit_ts_us, commit_time + EPOCH_US)
    xid = _prepend(carried.xid if carried else 0, reader.u32(at + 17))
    at = starts[commits]
    matching = reader.i64(at + 2) == commit_lsn[ordinal[commits]]
    frames.require(matching, "a Commit with the LSN its Begin announced", "another LSN", commits)
    end_lsn = reader.i64(at + 10)
    is_row = _IS_ROW[kinds]
    return Transactions(
        ordinal=ordinal,
        commit_lsn=commit_lsn,
        commit_ts_us=commit_ts,
        xid=xid,
        tx_index=_tx_index(is_row, ordinal, begins, carried.next_tx_index if carried else 0),
        prior_end_lsn=_prior_end_lsn(frames, state, commits, end_lsn, messages[~transactional]),
        origins=_origins(frames, carried, ordinal, begins),
        begins=begins,
        commits=commits,
        commit_end_lsn=end_lsn,
        messages=messages,
        transactional=transactional,
        is_row=is_row,
        open_at_end=open_at_end,
    )


def marks(frames: Frames, transactions: Transactions, first_seq: int) -> pa.RecordBatch:
    """Return the Begin and Commit messages as a batch of MARK_SCHEMA, in stream order."""
    at = np.flatnonzero((frames.kinds == BEGIN) | (frames.kinds == COMMIT))
    of = transactions.ordinal[at]
    is_commit = frames.kinds[at] == COMMIT
    end_lsn = np.zeros(len(at), dtype=np.int64)
    end_lsn[is_commit] = transactions.commit_end_lsn
    columns = [
        pa.array(at + first_seq),
        pa.array(frames.kinds[at]),
        pa.array(frames.lsn[at]),
        pa.array(transactions.xid[of]),
        pa.array(transactions.commit_lsn[of]),
        pa.array(end_lsn, mask=~is_commit),
        pa.array(transactions.commit_ts_us[of]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=MARK_SCHEMA)


def open_transaction(transactions: Transactions, count: int) -> OpenTransaction | None:
    """Return the transaction left open after the last of ``count`` frames; None if there is none."""
    if not transactions.open_at_end or count == 0:
        return None
    last = count - 1
    of = transactions.ordinal[last]
    origin, origin_lsn = origin_of(transactions.origins, last)
    return OpenTransaction(
        commit_lsn=int(transactions.commit_lsn[of]),
        commit_ts_us=int(transactions.commit_ts_us[of]),
        xid=int(transactions.xid[of]),
        next_tx_index=int(transactions.tx_index[last]) + int(transactions.is_row[last]),
        origin=origin,
        origin_lsn=origin_lsn,
    )


def origin_of(origins: Origins | None, frame: int) -> tuple[str | None, int | None]:
    """Return name and LSN of the origin in force at a frame."""
    if origins is None or origins.of_frame[frame] < 0:
        return None, None
    index = int(origins.of_frame[frame])
    # row-wise: one frame, for a rare message or a segment's end
    return origins.name[index].as_py(), int(origins.lsn[index])


def _transactional(frames: Frames, messages: np.ndarray) -> np.ndarray:
    flags = frames.reader.u8(frames.starts[messages] + 1)
    frames.require(flags <= 1, "flags 0 or 1 of a logical message", "others", messages)
    return np.asarray(flags == 1)


def _check_nesting(
    frames: Frames, state: StreamState, is_begin: np.ndarray, is_commit: np.ndarray, transactional: np.ndarray
) -> bool:
    opened = state.open is not None
    at = np.flatnonzero(is_begin | is_commit)
    # Begins and Commits must alternate: each must differ in kind from the previous one.
    begin_before = np.empty(len(at), dtype=bool)
    begin_before[:1] = opened
    begin_before[1:] = is_begin[at[:-1]]
    good = is_begin[at] != begin_before
    if not good.all():
        nested = bool(is_begin[at[int(np.argmin(good))]])
        expected = "a Commit before the next Begin" if nested else "a Begin before the Commit"
        frames.require(good, expected, "none", at)
    inside = (
        np.cumsum(is_begin.view(np.int8), dtype=np.int32) - np.cumsum(is_commit.view(np.int8), dtype=np.int32)
    ) == (0 if opened else 1)
    needs = _IS_INSIDE[frames.kinds]
    needs[transactional] = True
    frames.require(inside | ~needs, "a row, origin or transactional message inside a transaction", "one outside")
    return bool(inside[-1]) if len(frames) else opened


def _check_lengths(frames: Frames, begins: np.ndarray, commits: np.ndarray) -> None:
    length = frames.ends - frames.starts
    frames.require(length[begins] == 21, "21 bytes in a Begin message", "more", begins)
    frames.require(length[commits] == 26, "26 bytes in a Commit message", "more", commits)


def _tx_index(is_row: np.ndarray, ordinal: np.ndarray, begins: np.ndarray, carried: int) -> np.ndarray:
    before = np.cumsum(is_row) - is_row  # row messages before each frame
    return np.asarray(before - _prepend(-carried, before[begins])[ordinal])


def _prior_end_lsn(
    frames: Frames, state: StreamState, commits: np.ndarray, end_lsn: np.ndarray, standalone: np.ndarray
) -> np.ndarray:
    """Return the newest end before each frame; for a non-transactional message that is its own LSN."""
    at = np.concatenate([commits, standalone])
    order = np.argsort(at, kind="stable")
    ends = _prepend(state.prior_end_lsn, np.concatenate([end_lsn, frames.lsn[standalone]])[order])
    reached = np.zeros(len(frames), dtype=np.int64)
    reached[at] = 1
    return np.asarray(ends[np.cumsum(reached)])


def _origins(
    frames: Frames, carried: OpenTransaction | None, ordinal: np.ndarray, begins: np.ndarray
) -> Origins | None:
    at = np.flatnonzero(frames.kinds == ORIGIN)
    has_carried = carried is not None and carried.origin is not None
    if not len(at) and not has_carried:
        return None
    starts, ends = frames.starts[at], frames.ends[at]
    frames.require(frames.reader.u8(ends - 1) == 0, "an origin's name ended by a NUL byte", "none", at)
    name = as_text(gather_binary(frames.data, starts + 9, ends - 1), None, "pg_replication_origin", "roname")
    _refuse_inner_nul(frames, name, at)
    lsn = frames.reader.i64(starts + 1)
    if carried is not None and carried.origin is not None:
        name = pa.concat_arrays([pa.array([carried.origin], type=pa.string()), name])
        lsn = _prepend(carried.origin_lsn or 0, lsn)
    seen = np.zeros(len(frames), dtype=np.int64)
    seen[at] = 1
    newest = np.cumsum(seen) + int(has_carried) - 1
    # A transaction starts without an origin: those before its Begin are ignored.
    before = _prepend(-1, newest[begins])[ordinal]
    return Origins(name, lsn, np.where(newest > before, newest, -1))


def _refuse_inner_nul(frames: Frames, name: pa.Array, at: np.ndarray) -> None:
    inner = pc.find_substring(name, "\0").to_numpy(zero_copy_only=False)
    frames.require(inner < 0, "an origin's name ended by one NUL byte", "more bytes behind it", at)


def _prepend(first: int, rest: np.ndarray) -> np.ndarray:
    out = np.empty(len(rest) + 1, dtype=np.int64)
    out[0] = first
    out[1:] = rest
    return out
