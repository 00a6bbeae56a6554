"""OPTIMIZE and VACUUM of a table: everything small is put together, nothing that somebody may read is removed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact, maintain_after
from cdc_core.lake.schema.lake_schema import changelog_properties, lake_properties
from cdc_core.lake.write import maintain as maintain_module
from cdc_core.lake.write.maintain import Retention, maintain
from tests.support.spark import lake_rows
from tests.support.waits import patient

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
KEEP = Retention(15, 168)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "text": [f"text {number}" for number in ids]}, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path / "t"), SCHEMA, lake_properties(15))


def ids(table: DeltaTable) -> list[int]:
    return sorted(row["id"] for row in lake_rows(table.path))


def on_disk(table: DeltaTable) -> set[str]:
    return {file.name for file in Path(table.path).glob("*.parquet")}


def age(file: Path, hours: float) -> None:
    at = time.time() - hours * 3600
    os.utime(file, (at, at))


def test_small_files_become_one_and_the_counts_are_returned(table: DeltaTable) -> None:
    for number in range(9):
        table.commit([table.write(rows(number))], txns={"a": number})
    done = maintain(table.path, KEEP)
    assert done is not None
    assert (done.files_before, done.files_after, done.rewritten) == (9, 1, 9)
    assert 0 < done.bytes_after < done.bytes_before
    assert ids(table) == list(range(9))
    table.refresh()
    assert (table.version, table.txn("a")) == (done.version, 8)
    again = maintain(table.path, KEEP)
    assert again is not None
    assert (again.files_before, again.files_after, again.rewritten, again.removed) == (1, 1, 0, 0)


def test_only_files_that_no_commit_names_for_long_enough_are_removed(table: DeltaTable) -> None:
    table.commit([table.write(rows(1))])
    under_way, left_behind = table.write(rows(2)), table.write(rows(3))
    folder = Path(table.path)
    age(folder / under_way.path, 100)
    age(folder / left_behind.path, 200)
    (named,) = table.files
    age(folder / named.path, 5000)
    done = maintain(table.path, KEEP)
    assert done is not None and done.removed == 1
    assert on_disk(table) == {named.path, under_way.path}
    table.refresh()
    table.commit([under_way])
    assert ids(table) == [1, 2]


def test_without_a_history_nothing_is_removed(table: DeltaTable) -> None:
    table.commit([table.write(rows(1))])
    left_behind = table.write(rows(3))
    age(Path(table.path) / left_behind.path, 5000)
    done = maintain(table.path, Retention(0, 168))
    assert done is not None and done.removed == 0
    assert left_behind.path in on_disk(table)


def test_no_table_is_no_error(tmp_path: Path) -> None:
    assert maintain(str(tmp_path / "nothing"), KEEP) is None


def test_during_writes_no_row_is_lost_or_repeated(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy-on-write of all files, and appends, while passes of upkeep go on in another thread's own view of the log."""
    monkeypatch.setattr(maintain_module, "_PAUSE_SECONDS", 0.02)
    for number in range(20):
        table.commit([table.write(rows(number))], txns={"a": number})
    stopped, told = threading.Event(), []

    def maintenance() -> None:
        while not stopped.is_set():
            told.append(maintain(table.path, KEEP))

    thread = threading.Thread(target=maintenance)
    thread.start()
    try:
        expected = set(range(20))
        for number in range(20, 120):
            if number % 3:
                on_conflict(lambda n=number: table.commit([table.write(rows(n))], txns={"a": n}), table)
                expected.add(number)
            else:
                gone = min(expected)

                def rewrite(gone: int = gone, number: int = number) -> None:
                    files = table.files
                    kept = pa.concat_tables([table.read(file) for file in files])
                    kept = kept.filter(pa.compute.not_equal(kept.column("id"), gone))
                    table.commit([table.write(kept)], files, txns={"a": number})

                on_conflict(rewrite, table)
                expected.discard(gone)
    finally:
        stopped.set()
        thread.join(patient(60))
    assert not thread.is_alive()
    told.append(maintain(table.path, KEEP))
    assert ids(table) == sorted(expected)
    assert sum(done.rewritten for done in told if done is not None) > 0


def test_a_writer_that_never_rests_does_not_keep_it_from_ending(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain_module, "_PAUSE_SECONDS", 0)
    for number in range(9):
        table.commit([table.write(rows(number))])
    passes = 0

    def amid_appends(*arguments: object) -> int:
        nonlocal passes
        passes += 1
        assert passes < 20, "passes go on as long as the writer does"
        done = compact(*arguments)  # type: ignore[arg-type]
        for number in (1000 + passes, 2000 + passes):
            table.refresh()
            table.commit([table.write(rows(number))])
        return done

    monkeypatch.setattr(maintain_module, "compact", amid_appends)
    done = maintain(table.path, KEEP)
    assert done is not None and done.rewritten == 9
    assert len(ids(table)) == 9 + 2 * passes


CHANGES = pa.schema(
    [
        ("__op", pa.string()),
        ("__commit_lsn", pa.int64()),
        ("__tx_index", pa.int64()),
        ("__commit_ts", pa.timestamp("us", tz="UTC")),
        ("after", pa.struct([("id", pa.int64()), ("text", pa.string())])),
    ]
)


@pytest.mark.slow
def test_a_changelog_of_many_appends_stays_small(tmp_path: Path) -> None:
    """An append a second is 86,400 a day; a thousand tell the same, for what bounds them shows within half of it:
    files are bounded by their classes, log entries by the history of 5 minutes.
    """
    minutes = 5
    changelog = DeltaTable.create(str(tmp_path / "t"), CHANGES, changelog_properties(minutes))
    log = Path(changelog.path) / "_delta_log"
    one = pa.Table.from_pylist(
        [{"__op": "u", "__tx_index": index, "after": {"id": index, "text": "x" * 100}} for index in range(20)],
        schema=CHANGES,
    )
    count, most_files, most_entries = 1000, 0, 0
    for number in range(count):
        made = one.set_column(1, "__commit_lsn", pa.array([number] * 20, pa.int64()))
        since = changelog.version
        changelog.commit([changelog.write(made)], txns={"a": number})
        maintain_after(changelog, since, minutes)
        most_files = max(most_files, len(changelog.files))
        if number % 50 == 0:
            # As if a second had gone by with each append.
            entries = sorted(log.glob("*.json"))
            most_entries = max(most_entries, len(entries))
            for entry in [*entries, *log.glob("*.checkpoint.parquet")]:
                age(entry, (changelog.version - int(entry.name[:20])) / 3600)
    assert most_entries <= minutes * 60 + 3 * 100
    assert most_files <= 3 * 20
    assert sum(file.rows for file in changelog.files) == 20 * count
    done = maintain(changelog.path, Retention(minutes, 168))
    assert done is not None and done.files_after <= 4
