"""What is asked of the store, and that nothing is taken for true that the store has not said in the end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError
from cdc_core.lake import LastCommit, RecordedTable, RoundLog, StreamLog, StreamRecord, TableState
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.foreign import foreign_commit
from cdc_core.lake.delta.opened import keep, opened, opened_to_commit, share
from cdc_core.lake.delta.shared_log import SharedLog
from cdc_core.lake.delta.storage import Location, copies_for
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.slice.upkeep import UpkeepOrder, UpkeepTask
from cdc_core.lake.stores.staged_rows import StagedRows
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId
from tests.support.object_stores import Bucket
from tests.support.store_proxy import StoreProxy

pytestmark = [pytest.mark.stores, pytest.mark.slow]

IDS = pa.schema([("id", pa.int64())])


@pytest.fixture
def place(bucket: Bucket, store: StoreProxy, tmp_path: Path) -> Location:
    """A table's location as a run has it: with copies on this machine."""
    storage = replace(bucket.by(store.url).storage, copies=str(tmp_path / "objects"), copies_max_bytes=1 << 20)
    return Location(bucket.path("lake/test/public/t"), storage)


def worker(place: Location) -> DeltaTable:
    """The table as a worker of the run has it open."""
    table = DeltaTable.open(place)
    assert table is not None
    share(table, "run")
    assert table.shared is not None
    return table


def other_program(place: Location) -> DeltaTable:
    """The table as a program has it open that knows nothing of the run."""
    table = DeltaTable.open(Location(str(place), replace(place.storage, copies="")))
    assert table is not None
    return table


def ids(place: Location) -> list[int]:
    table = other_program(place)
    return sorted(each for file in table.files for each in table.read(file).column("id").to_pylist())


def rows(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers)}, IDS)


def test_workers_of_a_run_write_a_data_file_and_an_entry_and_ask_nothing(place, store):
    made = DeltaTable.create(place, IDS, {})
    made.commit([made.write(rows(*range(100)))])
    made.enable_vectors()
    workers = worker(place), worker(place)
    for table in workers:
        assert len(table.files) == 1  # the first slice of a worker loads the log
        table.has(table.files[0])
    for number in range(6):
        table = workers[number % 2]
        store.forget()
        table.expect_newest()
        assert table.version == 2 + number
        first = next(file for file in table.files if file.rows == 100)
        assert 100 - number == table.read(first).num_rows
        marked = [MarkedRows(first, np.array([number]))]
        table.commit([table.write(rows(1000 + number))], marked=marked, txns={"a": number})
        # Which worker reads the file of the other one first gets no copy of it: it was written before there were any.
        asked = [key for key in store.counts() if key != ("GET", "lake data")]
        assert sorted(asked) == [("PUT", "lake data"), ("PUT", "lake log")], store.counts()
    assert ids(place) == [*range(6, 100), *range(1000, 1006)]


def test_a_commit_of_another_program_is_found_by_the_next_one(place, store):
    made = DeltaTable.create(place, IDS, {})
    made.commit([made.write(rows(1, 2, 3))])
    table, other = worker(place), other_program(place)
    other.commit([other.write(rows(4))], list(other.files))
    table.expect_newest()
    assert table.version == 1, "nobody was asked"
    with pytest.raises(CommitConflictError):
        table.commit([table.write(rows(5))], list(table.files))
    on_conflict(lambda: table.commit([table.write(rows(5))], list(table.files)), table)
    assert ids(place) == [5]


def test_a_file_that_another_program_has_replaced_and_removed_is_not_an_error(place, store):
    """As after OPTIMIZE and VACUUM between two rounds."""
    made = DeltaTable.create(place, IDS, {})
    other = other_program(place)
    other.commit([other.write(rows(1, 2, 3))])
    table = worker(place)
    gone = list(other.files)
    other.commit([other.write(rows(1, 2, 3))], gone, data_change=False)
    other.discard(gone)
    table.expect_newest()

    def add_one() -> None:
        before = [each for file in table.files for each in table.read(file).column("id").to_pylist()]
        table.commit([table.write(rows(*before, 4))], list(table.files))

    on_conflict(add_one, table)
    assert ids(place) == [1, 2, 3, 4]
    assert made.path == place


def test_a_table_that_was_removed_is_noticed_by_who_asks(place, store, monkeypatch):
    """At most a minute later by who only commits."""
    keep("other run", DeltaTable.create(place, IDS, {}))
    table = opened("run", place)
    assert table is not None and opened_to_commit("run", place) is table
    table.folder.delete([f"_delta_log/{0:020}.json"])
    assert opened_to_commit("run", place) is table
    monkeypatch.setattr("cdc_core.lake.delta.shared_log._ASK_SECONDS", -1.0)
    assert opened_to_commit("run", place) is None


def test_the_workers_of_a_machine_ask_once_a_minute_whether_the_table_is_there(place, store, monkeypatch):
    made = DeltaTable.create(place, IDS, {})
    workers = worker(place), worker(place)
    monkeypatch.setattr("cdc_core.lake.delta.shared_log._ASK_SECONDS", 1e-6)
    store.forget()
    workers[0].expect_newest()
    assert sorted(store.counts()) == [("HEAD", "lake log")]
    monkeypatch.setattr("cdc_core.lake.delta.shared_log._ASK_SECONDS", 60.0)
    workers[1].expect_newest()
    assert sum(store.counts().values()) == 1, "it was asked a moment ago"
    assert made.shared is not None and not made.shared.lacks(made.folder, 0)
    assert sum(store.counts().values()) == 2, "its entries are not of the run"


def test_a_commit_of_the_run_is_not_read_to_see_whose_it_is(place, store):
    table = worker(DeltaTable.create(place, IDS, {}).path)
    for number in range(3):
        table.commit([table.write(rows(number))])
    store.forget()
    assert foreign_commit(place, 0, table.version, table.shared) is None
    assert not store.counts()
    other = other_program(place)
    other.commit([other.write(rows(9))])
    assert foreign_commit(place, 0, table.version + 1, table.shared) == table.version + 1


def test_maintenance_beside_the_rounds_asks_nothing(place, store):
    table = opened_to_commit("run", DeltaTable.create(place, IDS, {}).path)
    assert table is not None and not table.files
    for number in range(20):
        table.commit([table.write(rows(number))])
    store.forget()
    UpkeepTask("run", "", 0)(UpkeepOrder(table.path))
    assert dict(store.counts()) == {("PUT", "lake data"): 1, ("PUT", "lake log"): 1}
    assert ids(place) == list(range(20))


def test_rounds_and_confirmations_write_and_ask_nothing(place, store, bucket):
    """Nor do their checkpoints; their logs are listed once in a hundred versions."""
    rounds = RoundLog(Location(bucket.path("lake/test/__rounds"), place.storage), 60)
    stream = StreamLog(Location(bucket.path("lake/test/__stream"), place.storage), 60)
    stream.read()
    stream.begin(StreamRecord("1", 1, "db", "slot", Lsn(1)), is_first=True)
    tables = [RecordedTable(TableId("public", "t"), TableState.CURRENT, 5, 1, 7, "id")]

    def go_on(first: int) -> None:
        for lsn in range(first, first + 100):
            rounds.append(lsn, None, tables)
            stream.confirm(Lsn(lsn), LastCommit(Lsn(lsn), 5, 7))

    go_on(1000)
    store.forget()
    go_on(2000)
    kinds = {kind: sum(count for (of, _), count in store.counts().items() if of == kind) for kind, _ in store.counts()}
    checkpoints = [each for each in store.requests() if ".checkpoint." in each.key]
    # Google's store has no request that deletes several.
    assert len(checkpoints) >= 2 and {each.kind for each in checkpoints} <= {"PUT", "DELETE"}
    assert kinds.get("GET", 0) + kinds.get("HEAD", 0) <= 4, store.counts()
    assert kinds["LIST"] <= 6, store.counts()
    assert StreamLog(Location(bucket.path("lake/test/__stream"), place.storage), 60).read() == stream.known
    again = RoundLog(Location(bucket.path("lake/test/__rounds"), place.storage), 60).newest_of_epoch()
    assert again is not None and again.head.lsn == 2099


def test_to_look_for_staged_ranges_lists_nothing(place, store, bucket):
    staged = StagedRows(Location(bucket.path("lake/test/__staged"), place.storage), {})
    store.forget()
    assert staged.look() == []
    assert set(store.counts()) == {("HEAD", "staged log")}
    StagedRows(Location(bucket.path("lake/test/__staged"), place.storage), {}).create()
    assert staged.look() == []
    store.forget()
    staged.look()
    assert not [kind for kind, _ in store.counts() if kind == "LIST"], store.counts()


def test_entries_of_another_run_are_not_believed(place, store):
    """A table may have been created again at the path, or restored."""
    made = DeltaTable.create(place, IDS, {})
    folder = copies_for(place)
    assert folder is not None
    made.shared = SharedLog(folder, "earlier run", made.identity)
    made.commit([made.write(rows(1))])
    table = worker(place)
    SharedLog(folder, "earlier run", table.identity).put(table.version + 1, b"{}")
    table.expect_newest()
    assert table.version == 1


def test_small_vectors_are_in_the_log_and_other_readers_know_them(place, bucket, spark):
    made = DeltaTable.create(place, IDS, {})
    made.commit([made.write(rows(*range(20_000)))])
    made.enable_vectors()
    marked = list[int]()
    # Numbers of bytes with each rest by four, and one vector that is too large.
    for more in (1, 2, 3, 4, 500, 1_000, 2_000):
        marked += range(2 * len(marked), 2 * (len(marked) + more), 2)
        made.commit(marked=[MarkedRows(made.files[0], np.array(marked))])
        left = sorted({*range(20_000)} - {*marked})
        assert ids(place) == left
        assert (
            sorted(row.id for row in spark.read.format("delta").load(bucket.path("lake/test/public/t")).collect())
            == left
        )
    kinds = []
    for version in range(3, made.version + 1):
        lines = [json.loads(line) for line in made.folder.content(f"_delta_log/{version:020}.json").splitlines()]
        kinds += [line["add"]["deletionVector"]["storageType"] for line in lines if "add" in line]
    assert kinds == ["i"] * 6 + ["u"]


def test_checkpoints_are_made_of_what_the_workers_have_written(place, store):
    """Two requests each, and other readers find in them what the log has."""
    made = DeltaTable.create(place, IDS, {"delta.checkpointInterval": "10"})
    workers = worker(place), worker(place)
    for table in workers:
        assert table.files == []
    store.forget()
    for number in range(1, 40):
        table = workers[number % 2]
        table.expect_newest()
        table.commit([table.write(rows(number))], list(table.files)[:1] if number % 3 == 0 else [], txns={"a": number})
    keys = [f"{each.kind} {each.key}" for each in store.requests()]
    checkpoints = [key for key in keys if "checkpoint" in key]
    assert len([key for key in checkpoints if key.startswith("PUT")]) == 8, checkpoints
    # The first one begins without a checkpoint, and with the entry of the table's creation, which no worker has made.
    entries = [key for key in keys if key.startswith("GET") and "_delta_log" in key and key not in checkpoints]
    assert len(entries) <= 2, entries
    assert len(checkpoints) <= 10, checkpoints
    log = table.shared
    assert log is not None and [number for number in range(40) if log.has(number)] == [*range(30, 40)]
    other = other_program(place)
    assert other.version == 39 and other.txn("a") == 39
    assert ids(place) == sorted(each for file in workers[1].files for each in table.read(file).column("id").to_pylist())
    made.folder.delete([f"_delta_log/{number:020}.json" for number in range(30)])
    assert ids(place) and other_program(place).version == 39


def test_a_checkpoint_of_another_program_is_continued(place, store):
    made = DeltaTable.create(place, IDS, {"delta.checkpointInterval": "10"})
    for number in range(1, 6):
        made.commit([made.write(rows(number))])
    made.raw().create_checkpoint()
    table = worker(place)
    for number in range(6, 20):
        table.expect_newest()
        table.commit([table.write(rows(number))], txns={"a": number})
    names = [name for name in table.folder.names("_delta_log") if ".checkpoint." in name]
    assert sorted(int(name[:20]) for name in names) == [5, 9, 19]
    assert ids(place) == list(range(1, 20)) and other_program(place).txn("a") == 19
