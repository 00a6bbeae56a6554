"""From the stream to micro-batches: what a batch holds, where it is cut, what waits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.slot_reader import SlotReader
from cdc_core.errors import ProtocolError, TransientError
from cdc_core.lake.positions import ChangelogPosition
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.spool import ReadSpoolFiles
from cdc_core.schema.table import TableId
from tests.support import plain_pgoutput as plain
from tests.support.waits import patient, wait_until
from tests.unit.engine.streaming import CLIENTS, ORDERS, FakeStream, announce, insert, plan, reader, transaction

ORDERS_ID, CLIENTS_ID = TableId("shop", "orders"), TableId("shop", "clients")


@pytest.fixture
def stream() -> FakeStream:
    return FakeStream()


def batch_of(found: SlotReader, seconds: float = 10) -> Batch:
    """The next batch; the reader is asked once, as a caller that waits."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        batch = found.next_batch(0.2)
        if batch is not None:
            return batch
    raise AssertionError("no batch came")


def sorted_out(found: SlotReader, stream: FakeStream) -> None:
    """Wait until everything sent has been sorted."""
    wait_until(lambda: stream.waiting.empty() and not found._progress.unsorted, 10, "the sorter")


def ids(batch: Batch, table: TableId = ORDERS_ID) -> list[int]:
    paths = [str(path) for version in batch.versions[table] for path in version.paths]
    made = list(ReadSpoolFiles(plan(), Owner())(tuple(paths)))
    return [row["after"]["id"] for rows in made for row in rows.to_pylist()]


def test_a_batch_takes_what_has_come(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        stream.send([*announce(ORDERS), *transaction(1000, insert(1))])
        first = batch_of(found)
        # Nobody asks while these come: a slow caller gets one batch of them all.
        for number in range(2, 12):
            stream.send(transaction(1000 + number, insert(number)))
        sorted_out(found, stream)
        assert not found.is_drained
        second = batch_of(found)
    assert (ids(first), ids(second)) == ([1], list(range(2, 12)))
    assert (first.number, second.number) == (1, 2)
    assert (first.complete_lsn, first.confirm_lsn) == (1000, 1008)
    assert (second.complete_lsn, second.confirm_lsn, second.open_lsn) == (1011, 1019, None)
    assert len(second.paths()) == 1, "one file of all segments"
    assert stream.closed


def test_a_batch_is_returned_at_once_if_a_caller_waits(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        assert found.next_batch(0.05) is None
        stream.send([*announce(ORDERS), *transaction(1000, insert(1))])
        started = time.monotonic()
        assert batch_of(found).rows == 1
        assert time.monotonic() - started < patient(5)


def test_a_segment_that_ends_in_a_transaction_gives_what_is_whole(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        begun = transaction(1002, insert(4), insert(5))
        stream.send(
            [
                *announce(ORDERS),
                *transaction(1000, insert(1)),
                *transaction(1001, insert(2), insert(3)),
                *begun[:2],
            ]
        )
        first = batch_of(found)
        assert (ids(first), first.complete_lsn, first.open_lsn) == ([1, 2, 3], 1001, None)
        assert first.only_inserts(ORDERS_ID), "nothing of it has to be read from the changelog again"
        found.done(first)
        assert found.idle_position() is None and not found.is_drained, "the transaction's beginning is not done"
        assert found.next_batch(0.2) is None
        stream.send(begun[2:])
        second = batch_of(found)
        assert (ids(second), second.complete_lsn, second.open_lsn) == ([4, 5], 1002, None)


def test_a_transaction_that_is_not_whole_is_waited_for(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        begun = transaction(1000, insert(1), insert(2))
        stream.send([*announce(ORDERS), *begun[:-1]])
        assert found.next_batch(0.5) is None
        stream.send(begun[-1:])
        batch = batch_of(found)
    assert (batch.rows, batch.complete_lsn, batch.open_at(ORDERS_ID)) == (2, 1000, None)


def test_a_transaction_larger_than_a_batch_is_cut(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path, rows=3) as found:
        stream.send([*announce(ORDERS), *transaction(900, insert(0))])
        stream.send([plain.begin(1000, 0, 7), insert(1), insert(2), insert(3)])
        cut = batch_of(found)
        if cut.complete_lsn == 900 and cut.open_lsn is None:
            cut = batch_of(found)
        assert cut.open_lsn == 1000 and cut.open_at(ORDERS_ID) == (1000, 2)
        assert cut.only_inserts(ORDERS_ID) is False
        stream.send([insert(4), plain.commit(1000, 1008, 0)])
        rest = batch_of(found)
    assert (ids(rest), rest.complete_lsn, rest.complete_to(ORDERS_ID)) == ([4], 1000, 1000)


def test_what_the_changelogs_hold_is_dropped(stream: FakeStream, tmp_path: Path) -> None:
    held = {ORDERS_ID: ChangelogPosition(1000, 0)}
    with reader(stream, tmp_path, held) as found:
        stream.send([*announce(ORDERS, CLIENTS), *transaction(900, insert(1), insert(7, CLIENTS))])
        stream.send(transaction(1000, insert(2), insert(3)))
        sorted_out(found, stream)
        batch = batch_of(found)
    assert (ids(batch), ids(batch, CLIENTS_ID), batch.rows) == ([3], [7], 2)


def test_a_batch_of_nothing_but_known_rows_still_confirms(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path, {ORDERS_ID: ChangelogPosition(1000)}) as found:
        stream.send([*announce(ORDERS), *transaction(1000, insert(1))])
        batch = batch_of(found)
    assert (batch.rows, batch.versions, batch.confirm_lsn) == (0, {}, 1008)


def test_only_inserts_are_recognized(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        stream.send([*announce(ORDERS, CLIENTS), *transaction(1000, insert(1), insert(7, CLIENTS), insert(2))])
        stream.send(transaction(1010, plain.update(CLIENTS.oid, ["7"])))
        sorted_out(found, stream)
        batch = batch_of(found)
        assert batch.only_inserts(ORDERS_ID) and not batch.only_inserts(CLIENTS_ID)
        stream.send(transaction(1020, insert(3), plain.truncate([ORDERS.oid])))
        assert not batch_of(found).only_inserts(ORDERS_ID)


def test_silence_is_confirmed_only_when_all_is_done(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        stream.wal_end = 500
        wait_until(lambda: found.idle_position() == 500, 10, "the silence")
        stream.send([*announce(ORDERS), *transaction(1000, insert(1))])
        batch = batch_of(found)
        stream.wal_end = 2000
        before = stream.silences
        wait_until(lambda: stream.silences > before + 1, 10, "the reader to notice the silence")
        assert not found.is_drained and found.idle_position() is None
        paths = batch.paths()
        assert all(path.exists() for path in paths)
        found.done(batch)
        assert found.is_drained and not any(path.exists() for path in paths)
        wait_until(lambda: found.idle_position() == 2000, 10, "the silence behind the batch")


def test_reading_rests_while_the_spool_is_full(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path, spool_bytes=1) as found:
        stream.send([*announce(ORDERS), *transaction(1000, insert(1))])
        batch = batch_of(found)
        stream.send(transaction(1010, insert(2)))
        assert found.next_batch(0.5) is None
        found.done(batch)
        assert ids(batch_of(found)) == [2]


@pytest.mark.parametrize("error", [TransientError("The server went away.", "Run again."), OSError("broken")])
def test_what_ended_the_reading_is_raised(stream: FakeStream, tmp_path: Path, error: Exception) -> None:
    with reader(stream, tmp_path) as found:
        stream.fail(error)
        with pytest.raises(type(error)):
            batch_of(found)


def test_a_stream_that_breaks_the_protocol_is_named(stream: FakeStream, tmp_path: Path) -> None:
    with reader(stream, tmp_path) as found:
        stream.send(transaction(1000, insert(1)))
        with pytest.raises(ProtocolError):
            batch_of(found)


def test_a_cut_after_a_truncate_has_the_last_row(stream: FakeStream, tmp_path: Path) -> None:
    """The rows on both sides of a truncate are one run, which is noted before the truncate in its middle."""
    with reader(stream, tmp_path, rows=5) as found:
        begun = [plain.begin(1000, 0, 7), insert(1), insert(2), plain.truncate([ORDERS.oid]), insert(3), insert(4)]
        stream.send([*announce(ORDERS), *begun])
        cut = batch_of(found)
        stream.send([insert(5), plain.commit(1000, 1008, 0)])
        rest = batch_of(found)
    assert (cut.rows, cut.open_at(ORDERS_ID)) == (5, (1000, 4))
    assert (rest.rows, rest.complete_to(ORDERS_ID), rest.open_at(ORDERS_ID)) == (1, 1000, None)
