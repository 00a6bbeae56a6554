"""The table of rounds, and finding the versions to read by, against Delta tables on disk."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.errors import LakeError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.positions import epoch_app, merge_app, snapshot_app
from cdc_core.lake.stores import rounds as rounds_module
from cdc_core.lake.stores.round_lookup import find_cut, renew_newest
from cdc_core.lake.stores.rounds import RecordedTable, RoundLog, TableState
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId

A, B = TableId("public", "a"), TableId("public", "b")
SLOT = "slot"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64())])


def current(table, version, merged=None, snapshot=None, identity=None):
    return RecordedTable(table, TableState.CURRENT, version, snapshot, merged, identity)


@pytest.fixture
def paths(tmp_path):
    return LakePaths(str(tmp_path), "t")


def a_log(paths, history=0):
    log = RoundLog(paths.rounds, history)
    log.refresh()
    return log


def test_rounds_are_numbered_and_their_lsn_never_falls(paths):
    log = a_log(paths)
    assert log.newest() is None and log.heads() == []
    assert log.append(100, None, [current(A, 1), RecordedTable(B, TableState.PAUSED, None)])
    assert log.append(100, NOON, [current(A, 1), current(B, 4)])
    assert not log.append(99, NOON, [current(A, 2)])
    assert log.append(101, NOON, [current(A, 2), current(B, 4)])
    assert [(head.number, head.lsn, head.committed_at) for head in log.heads()] == [
        (1, 100, None),
        (2, 100, NOON),
        (3, 101, NOON),
    ]
    found = a_log(paths).newest()
    assert found is not None
    assert (found.head.number, found.tables) == (3, (current(A, 2), current(B, 4)))
    first = log.round(1)
    assert first is not None
    assert [(one.table, one.state, one.version) for one in first.tables] == [
        (A, TableState.CURRENT, 1),
        (B, TableState.PAUSED, None),
    ]
    assert log.round(4) is None


def test_two_writers_never_give_one_number_twice(paths):
    one, other = a_log(paths), a_log(paths)
    one.append(1, None, [current(A, 1)])
    other.append(2, None, [current(A, 2)])
    one.append(3, None, [current(A, 3)])
    assert not other.append(2, None, [current(A, 9)])
    assert [(head.number, head.lsn) for head in a_log(paths).heads()] == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.slow
def test_old_rounds_go_and_the_files_stay_few(paths, monkeypatch):
    log = a_log(paths, history=15)
    clock = {"now": NOON}

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return clock["now"]

    monkeypatch.setattr(rounds_module, "datetime", Clock)
    monkeypatch.setattr(rounds_module, "_EXPIRE_EVERY", 20)
    for number in range(1, 301):
        clock["now"] = NOON + timedelta(minutes=number)
        assert log.append(number, None, [current(A, number), current(B, 1)])
    opened = DeltaTable.open(paths.rounds)
    assert opened is not None
    assert len(opened.files) <= 40
    heads = log.heads()
    assert heads[-1].number == 300
    # Rounds of two hours can be asked for; what is older went, but for what shares a file with more that stay.
    assert 60 <= heads[0].number <= 180
    assert [head.number for head in heads] == list(range(heads[0].number, 301))


def a_lake_table(paths, table):
    made = DeltaTable.create(paths.lake(table), SCHEMA, {})
    made.commit(txns={snapshot_app(SLOT, table): 7})
    return made


def merged(lake, table, lsn, remove=False):
    gone = list(lake.files) if remove else []
    rows = pa.table({"id": [lsn]})
    return lake.commit([lake.write(rows)], gone, txns={merge_app(SLOT, table, 7): lsn})


def test_rounds_in_which_a_table_is_behind_are_passed_over(paths):
    """As a table is that is merged less often than others."""
    lakes = {table: a_lake_table(paths, table) for table in (A, B)}
    log, behind = a_log(paths), RecordedTable(B, TableState.BEHIND, None, 7, 100)
    slow = current(B, merged(lakes[B], B, 100), 100, 7)
    quick = {lsn: current(A, merged(lakes[A], A, lsn), lsn, 7) for lsn in (100, 200, 300)}
    log.append(100, NOON, [quick[100], slow])
    log.append(200, NOON, [quick[200], behind])
    log.append(300, NOON, [quick[300], behind])

    def lsn(at, *tables):
        return int(find_cut(paths, SLOT, at, tables).lsn)

    assert lsn(None) == lsn(None, B) == lsn(Lsn(300), A, B) == 100
    assert lsn(None, A) == 300 and lsn(Lsn(299), A) == 200
    log.append(400, NOON, [current(A, quick[300].version, 300, 7), RecordedTable(B, TableState.PAUSED, None, 7, 100)])
    assert lsn(None) == 400, "a paused table is not waited for"
    with pytest.raises(LakeError, match="paused"):
        lsn(None, B)


def test_a_table_that_is_behind_in_every_round_has_no_version(paths):
    log = a_log(paths)
    a_lake_table(paths, B)
    log.append(100, NOON, [RecordedTable(B, TableState.BEHIND, None)])
    log.append(200, NOON, [RecordedTable(B, TableState.BEHIND, None)])
    assert int(find_cut(paths, SLOT, None).lsn) == 200
    with pytest.raises(LakeError, match="behind"):
        find_cut(paths, SLOT, None, [B])


def test_a_cut_is_the_newest_round_at_or_before(paths):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    versions = {}
    for lsn in (100, 200, 300):
        versions[lsn] = merged(lake, A, lsn)
        log.append(lsn, NOON + timedelta(seconds=lsn), [current(A, versions[lsn], lsn, 7)])

    def cut(at, *tables):
        found = find_cut(paths, SLOT, at, tables)
        return found.lsn, [one.version for one in found.tables]

    assert cut(None) == cut(Lsn(300)) == (300, [versions[300]])
    assert cut(Lsn(299), A) == cut(Lsn(200)) == (200, [versions[200]])
    assert cut(NOON + timedelta(seconds=250)) == (200, [versions[200]])
    for at, where in (
        (Lsn(99), "0/63 is before the oldest round that is kept, which is at 0/64"),
        (Lsn(301), "0/12D is after the newest round, which is at 0/12C"),
        (NOON, "is before the oldest round"),
        (NOON + timedelta(seconds=301), "is after the newest round"),
    ):
        with pytest.raises(LakeError) as error:
            cut(at)
        assert where in error.value.message
    with pytest.raises(LakeError) as error:
        cut(None, B)
    assert "public.b is not in the round" in error.value.message


def test_a_table_that_is_not_at_the_lsn_has_no_version_and_cannot_be_asked_for(paths):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    log.append(100, None, [current(A, merged(lake, A, 100), 100, 7), RecordedTable(B, TableState.REREADING, None)])
    found = find_cut(paths, SLOT, None)
    assert [(one.table, one.version, one.state) for one in found.tables] == [
        (A, 2, TableState.CURRENT),
        (B, None, TableState.REREADING),
    ]
    with pytest.raises(LakeError) as error:
        find_cut(paths, SLOT, None, [A, B])
    assert "its state in that round is rereading" in error.value.message


def test_a_version_that_upkeep_replaced_is_replaced_in_the_cut(paths):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    for lsn in range(1, 21):
        merged(lake, A, lsn)
    log.append(20, None, [current(A, lake.version, 20, 7)])
    assert compact(lake) >= 16
    clean_now(lake)
    found = find_cut(paths, SLOT, None, [A])
    assert found.tables[0].version == lake.version
    read = DeltaTable.open_version(paths.lake(A), lake.version)
    assert read is not None
    assert sum(file.rows for file in read.files) == 20


def test_a_version_whose_files_were_removed_is_an_error(paths):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    log.append(1, None, [current(A, merged(lake, A, 1), 1, 7)])
    log.append(2, None, [current(A, merged(lake, A, 2, remove=True), 2, 7)])
    assert find_cut(paths, SLOT, Lsn(1)).tables[0].version == 2
    clean_now(lake)
    assert find_cut(paths, SLOT, Lsn(2)).tables[0].version == 3
    with pytest.raises(LakeError) as error:
        find_cut(paths, SLOT, Lsn(1))
    assert "can no longer be read: its files were removed" in error.value.message


def clean_now(lake):
    lake.raw().vacuum(0, dry_run=False, enforce_retention_duration=False)
    lake.refresh()


def test_clean_leaves_recorded_rounds_within_the_history_readable(paths):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    for lsn in range(1, 6):
        log.append(lsn, None, [current(A, merged(lake, A, lsn, remove=True), lsn, 7)])
    clean(lake, 15)
    assert [find_cut(paths, SLOT, Lsn(lsn)).tables[0].version for lsn in range(1, 6)] == [2, 3, 4, 5, 6]


def test_no_round_yet(paths):
    with pytest.raises(LakeError) as error:
        find_cut(paths, SLOT, None)
    assert "No round has been recorded" in error.value.message


@pytest.mark.parametrize("is_named", [True, False])  # rounds of earlier releases do not name the table
def test_a_version_is_that_of_the_recorded_table(paths, tmp_path, is_named):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    identity = lake.identity if is_named else None
    for lsn in (100, 200):
        log.append(lsn, None, [current(A, merged(lake, A, lsn), lsn, 7, identity)])
    folder, aside = Path(paths.lake(A)), tmp_path / "aside"
    folder.rename(aside)
    with pytest.raises(LakeError, match="can no longer be read"):
        find_cut(paths, SLOT, Lsn(100))
    # Read anew, with more versions than before.
    again = DeltaTable.create(paths.lake(A), SCHEMA, {})
    again.commit(txns={snapshot_app(SLOT, A): 250})
    for lsn in (260, 270, 280):
        rows = pa.table({"id": [lsn]})
        again.commit([again.write(rows)], txns={merge_app(SLOT, A, 250): lsn})
    assert again.version > lake.version
    for lsn in (100, 200):
        with pytest.raises(LakeError, match="or the table was created again"):
            find_cut(paths, SLOT, Lsn(lsn), [A])
    log.append(280, None, [current(A, again.version, 280, 250, again.identity)])
    assert find_cut(paths, SLOT, None, [A]).tables[0].version == again.version
    # The former folder is moved back: its versions are what the rounds say, and the newest round's is not.
    folder.rename(tmp_path / "later")
    aside.rename(folder)
    assert [find_cut(paths, SLOT, Lsn(lsn), [A]).tables[0].version for lsn in (100, 200)] == [2, 3]
    with pytest.raises(LakeError, match="can no longer be read"):
        find_cut(paths, SLOT, None, [A])


def test_a_table_created_again_at_the_same_positions_is_another_one(paths, tmp_path):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    log.append(100, None, [current(A, merged(lake, A, 100), 100, 7, lake.identity)])
    Path(paths.lake(A)).rename(tmp_path / "aside")
    merged(a_lake_table(paths, A), A, 100)
    with pytest.raises(LakeError, match="created again"):
        find_cut(paths, SLOT, None, [A])


def test_a_new_epoch_begins_new_rounds_and_leaves_the_old_ones_to_be_found_by_time(paths):
    lake = a_lake_table(paths, A)
    log = a_log(paths)
    log.append(500, NOON, [current(A, merged(lake, A, 500), 500, 7, lake.identity)])
    scope = f"{SLOT}@1"
    with pytest.raises(LakeError, match="since the lake was read from the present server"):
        find_cut(paths, scope, Lsn(500))
    version = lake.commit(txns={snapshot_app(scope, A): 90, epoch_app(A): 1})
    new = RoundLog(paths.rounds, 0, 1)
    assert new.refresh() and new.newest_lsn is None
    later = NOON + timedelta(hours=1)
    assert new.append(90, later, [current(A, version, None, 90, lake.identity)])
    log.refresh()
    assert not log.append(600, later, [current(A, version, 600, 7)])  # a run of the former epoch that is still active
    assert new.newest_lsn == 90
    found = find_cut(paths, scope, None, [A])
    assert (found.lsn, found.epoch, found.tables[0].version) == (90, 1, version)
    for at in (Lsn(90), later):
        assert find_cut(paths, scope, at, [A]).tables[0].version == version
    with pytest.raises(LakeError, match="is after the newest round, which is at 0/5A"):
        find_cut(paths, scope, Lsn(500))
    former = find_cut(paths, scope, NOON, [A])
    assert (former.lsn, former.epoch, former.tables[0].version) == (500, 0, 2)
    assert not renew_newest(paths, scope, 0) and not renew_newest(paths, f"{SLOT}@2", 0)
