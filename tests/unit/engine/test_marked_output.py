"""A mark follows only what is complete, and only what a durable mark covers is confirmed to the slot."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.decode.pgoutput.stream_state import SortedSegment
from cdc_core.engine.reports import BatchReport
from cdc_core.events.stream.marked_output import MarkedOutput
from cdc_core.events.stream.output import EnvelopeOutput
from cdc_core.events.stream.segments import SharedSegments
from cdc_core.lsn import Lsn
from tests.support import plain_pgoutput as plain
from tests.unit.decode.streams import ORDERS, TIME_US, announced, sort, transaction

COMMITTED = transaction(plain.insert(ORDERS.oid, ["1", "a"]), commit_lsn=1000)
BEGUN = [plain.begin(2000, TIME_US, 8), plain.insert(ORDERS.oid, ["2", "b"])]


class LateOutput(EnvelopeOutput):
    """An output that tells by itself what is durable."""

    durable = Lsn(0)

    @property
    def durable_lsn(self) -> Lsn:
        return self.durable


@pytest.fixture
def output(tmp_path: Path) -> LateOutput:
    return LateOutput(tmp_path / "events", "slot", lambda records: [str(each) for each in records["seq"].to_pylist()])


def records_of(found: SortedSegment) -> pa.Table:
    seqs = [run.raw.column("seq") for run in found.runs]
    return pa.table({"seq": pa.concat_arrays([pa.array([], pa.int64()), *(each.cast(pa.int64()) for each in seqs)])})


def lines(tmp_path: Path) -> int:
    return len((tmp_path / "events").read_text().splitlines())


def test_what_follows_the_last_commit_is_behind_the_mark(output: LateOutput, tmp_path: Path) -> None:
    marked = MarkedOutput(output)
    with output:
        assert marked.open().lsn == 0
        found = sort([*COMMITTED, *BEGUN], announced())
        assert marked.write(records_of(found), found, True, None) == 2
        assert marked.position.lsn == 1048
        assert not output.is_marked
        assert lines(tmp_path) == 2
    with output:
        assert MarkedOutput(output).open().lsn == 1048
        assert lines(tmp_path) == 1


def test_a_heartbeat_is_marked_only_between_transactions(output: LateOutput) -> None:
    marked, beat = MarkedOutput(output), pa.table({"seq": [0]})
    with output:
        marked.open()
        marked.write_idle(beat, False)
        assert not output.is_marked
        marked.write_idle(beat, True)
        assert output.is_marked


def test_messages_outside_of_transactions_are_marked_unless_one_is_open(output: LateOutput) -> None:
    marked, note = MarkedOutput(output), sort([plain.message(100, "note", b"x", False)])
    with output:
        marked.open()
        marked.write(pa.table({"seq": [0]}), note, True, None)
        assert (marked.position.lsn, output.is_marked) == (0, False)
        marked.write(pa.table({"seq": [0]}), note, False, None)
        assert (marked.position.lsn, output.is_marked) == (101, True)


def test_the_slot_is_confirmed_to_what_is_durable_and_that_is_reported(output: LateOutput) -> None:
    marked, segments, told = MarkedOutput(output), SharedSegments(1 << 20), list[BatchReport]()
    marked.report(told.append, lambda prefix: False)
    segments.put(sort(COMMITTED, announced()))
    found = segments.next(0)
    assert found is not None
    with output:
        marked.open()
        marked.write(records_of(found), found, False, None)
        marked.confirm(segments)
        assert (segments.reach(5000), told) == (0, [])
        output.durable = Lsn(1048)
        marked.confirm(segments)
        marked.confirm(segments)
        assert segments.reach(5000) == 1048
        assert [int(each.commit_lsn) for each in told] == [1048]
