"""Run the vectorised decoder and the plain one over the same frames and demand the same answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cdc_core.decode.pgoutput import SortedSegment, StreamState, decode_rows, sort_segment
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.decode.segment import Segment
from cdc_core.schema.relation import Relation
from cdc_core.schema.table import TableId, TableSchema
from tests.support.plain_pgoutput import UNCHANGED, PlainStream

_FACTS = ("seq", "lsn", "commit_lsn", "tx_index", "prior_end_lsn", "xid", "commit_ts_us", "origin", "origin_lsn")


def table_of(relation: Relation) -> TableSchema:
    return TableSchema(TableId(relation.namespace, relation.name), relation.oid, ())


def sort_pieces(
    frames: Sequence[bytes],
    cuts: Iterable[int] = (),
    uncaptured: frozenset[int] = frozenset(),
    max_bytes: int = 2**31 - 1,
) -> tuple[list[SortedSegment], StreamState]:
    """Sort the frames in segments that end before each of ``cuts``; relations of ``uncaptured`` OIDs are dropped."""
    state, out = StreamState(), []
    bounds = [0, *sorted(cuts), len(frames)]
    for first, last in itertools.pairwise(bounds):
        out.append(
            sort_segment(
                Segment.of(frames[first:last]),
                state,
                lambda relation, xid: None if relation.oid in uncaptured else table_of(relation),
                max_bytes,
            )
        )
    return out, state


def plain(frames: Iterable[bytes]) -> PlainStream:
    stream = PlainStream()
    for frame in frames:
        stream.feed(frame)
    return stream


def assert_same(
    frames: Sequence[bytes],
    cuts: Iterable[int] = (),
    uncaptured: frozenset[int] = frozenset(),
    max_bytes: int = 2**31 - 1,
) -> None:
    """The whole comparison: rows with their positions and values, truncates, messages, marks."""
    expected = plain(frames)
    segments, state = sort_pieces(frames, cuts, uncaptured, max_bytes)
    rows = sorted(
        (row for segment in segments for run in segment.runs for row in _rows(run)), key=lambda row: row["seq"]
    )
    assert rows == [_plain_row(row) for row in expected.rows if row.relation.oid not in uncaptured]
    for segment in segments:
        for run in segment.runs:
            assert np.all(np.diff(run.raw.column("seq").to_numpy()) > 0)
            assert run.raw.nbytes >= 0 and run.raw.validate(full=True) is None
    dropped = {str(relation) for relation in expected.relations.values() if relation.oid in uncaptured}
    assert [
        (*(getattr(one, name) for name in _FACTS), tuple(str(table.id) for table in one.tables), one.options)
        for segment in segments
        for one in segment.truncates
    ] == [
        (*one[:9], tuple(name for name in one[9] if name not in dropped), one[10])
        for one in expected.truncates
        if any(name not in dropped for name in one[9])
    ]
    assert [
        (*(getattr(one, name) for name in _FACTS), one.transactional, one.prefix, one.content)
        for segment in segments
        for one in segment.messages
    ] == expected.messages
    marks = [tuple(mark.values()) for segment in segments for mark in segment.transactions.to_pylist()]
    assert [(mark[0], chr(mark[1]), *mark[2:]) for mark in marks] == expected.marks
    assert sum(segment.frames for segment in segments) == len(frames)
    assert state.prior_end_lsn == expected.prior
    assert (state.open is None) == (expected.open is None)


def values_of(columns: RawColumns, index: int) -> list[Any]:
    return [
        UNCHANGED if mask is not None and mask[index] else text[index].as_py()
        for text, mask in zip(columns.text, columns.unchanged, strict=True)
    ]


def _rows(run: Any) -> Iterable[dict[str, Any]]:
    decoded = decode_rows(run.raw, run.relation)
    for column in (*decoded.new.text, *decoded.old.text):
        column.validate(full=True)
        assert len(column) == run.raw.num_rows
    for index, facts in enumerate(run.raw.drop_columns(["payload"]).to_pylist()):
        op, old_kind = chr(decoded.op[index]), chr(decoded.old_kind[index]).strip("\0")
        new, old = values_of(decoded.new, index), values_of(decoded.old, index)
        if op == "D":
            assert new == [None] * len(new)
        if not old_kind:
            assert old == [None] * len(old)
        yield {
            **facts,
            "relation": run.relation,
            "op": op,
            "old_kind": old_kind,
            "new": None if op == "D" else new,
            "old": old if old_kind else None,
        }


def _plain_row(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in (*_FACTS, "relation", "op", "old_kind", "new", "old")}
