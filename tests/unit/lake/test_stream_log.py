"""The record of the stream: read as written, one writer at a time, an epoch more at each beginning."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_core.errors import CommitConflictError
from cdc_core.lake.stores import stream_log
from cdc_core.lake.stores.stream_log import LastCommit, StreamLog, StreamReader, StreamRecord, read_stream
from cdc_core.lsn import Lsn

RECORD = StreamRecord(
    "7461908217356628123",
    3,
    "shop",
    "slot_1",
    Lsn(700),
    0,
    ((1, Lsn(100)), (2, Lsn(200))),
    16384,
    "publication",
    LastCommit(Lsn(650), 812, 1_700_000_000_000_000),
    "why",
    "what",
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "__stream")


def opened(path: str) -> StreamLog:
    log = StreamLog(path, 60)
    log.read()
    return log


def test_a_lake_without_a_record(path: str) -> None:
    assert read_stream(path) is None


def test_it_is_read_as_it_was_written(path: str) -> None:
    opened(path).write(RECORD)
    assert read_stream(path) == RECORD


def test_a_confirmation_keeps_the_rest(path: str) -> None:
    log = opened(path)
    log.write(RECORD)
    log.confirm(Lsn(800), None)
    assert read_stream(path) == log.known == replace(RECORD, confirmed=Lsn(800))
    last = LastCommit(Lsn(850), 813, 1_700_000_000_000_001)
    log.confirm(Lsn(900), last)
    assert read_stream(path) == log.known == replace(RECORD, confirmed=Lsn(900), last=last)
    log.confirm(Lsn(950), LastCommit(Lsn(849), 811, 5))
    assert read_stream(path) == log.known == replace(RECORD, confirmed=Lsn(950), last=last)


def test_many_confirmations_leave_no_data_files_and_are_read_after_a_checkpoint(path: str) -> None:
    log = opened(path)
    log.write(RECORD)
    for lsn in range(1_000, 1_130):
        log.confirm(Lsn(lsn), None)
    assert read_stream(path) == replace(RECORD, confirmed=Lsn(1_129))
    assert len(list(Path(path).glob("*.parquet"))) == 1


def test_a_reader_reads_again_only_what_has_changed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    monkeypatch.setattr(stream_log, "read_stream", lambda path: reads.append(path) or read_stream(path))
    reader = StreamReader()
    assert (reader.read(path), reader.read(path)) == (None, None)
    log = opened(path)
    log.write(RECORD)
    assert reader.read(path) is reader.read(path)
    log.confirm(Lsn(800), None)
    assert reader.read(path) == reader.read(path) == log.known
    assert len(reads) == 4


@pytest.mark.parametrize("how", ["removed", "created again", "another", "moved"])
def test_a_reader_does_not_take_one_lake_for_another(path: str, tmp_path: Path, how: str) -> None:
    opened(path).write(RECORD)
    reader, other = StreamReader(), replace(RECORD, system_id="8", epoch=3)
    assert reader.read(path) == RECORD
    if how == "another":
        elsewhere = str(tmp_path / "other")
        opened(elsewhere).write(other)
        assert reader.read(elsewhere) == other
        return
    shutil.rmtree(path)
    if how == "created again":  # the log's entries have the same names
        opened(path).write(other)
    elif how == "moved":
        opened(str(tmp_path / "other")).write(other)
        (tmp_path / "other").rename(path)
    assert reader.read(path) == (None if how == "removed" else other)


def test_a_new_epoch_has_no_position_of_the_one_before(path: str) -> None:
    log = opened(path)
    first = log.begin(RECORD, is_first=True)
    assert (first.epoch, first.confirmed, first.last, first.broken, first.gap) == (0, 0, None, "", "")
    log.confirm(Lsn(800), LastCommit(Lsn(790), 5, 6))
    second = opened(path).begin(replace(RECORD, system_id="8"), is_first=True)
    assert read_stream(path) == second
    assert (second.epoch, second.confirmed, second.last, second.system_id) == (1, 0, None, "8")


def test_what_a_lake_held_before_it_had_a_record_belongs_to_epoch_0(path: str) -> None:
    assert opened(path).begin(RECORD, is_first=False).epoch == 1
    assert opened(path).begin(RECORD, is_first=False).epoch == 2


def test_an_epoch_is_later_than_what_the_lake_holds_whatever_the_record_says(path: str) -> None:
    assert opened(path).begin(RECORD, is_first=True, after=3).epoch == 4
    assert opened(path).begin(RECORD, is_first=False, after=4).epoch == 5
    assert opened(path).begin(RECORD, is_first=False, after=2).epoch == 6


def test_a_run_that_outlasts_its_successor_is_refused(path: str) -> None:
    opened(path).write(RECORD)
    old, new = opened(path), opened(path)
    new.confirm(Lsn(800), None)
    with pytest.raises(CommitConflictError, match="Another run"):
        old.confirm(Lsn(750), None)
    old = opened(path)
    new.write(replace(RECORD, epoch=1))
    for late in (lambda: old.confirm(Lsn(900), None), lambda: old.write(RECORD)):
        with pytest.raises(CommitConflictError, match="Another run"):
            late()
    assert read_stream(path).epoch == 1


def test_maintenance_in_between_is_no_conflict(path: str) -> None:
    log = opened(path)
    log.write(RECORD)
    log.write(replace(RECORD, gap="more"))
    other = opened(path)
    other._opened.raw().vacuum(0, dry_run=False, enforce_retention_duration=False)
    log.write(replace(RECORD, gap="most"))
    log.confirm(Lsn(800), None)
    assert read_stream(path) == replace(RECORD, gap="most", confirmed=Lsn(800))
