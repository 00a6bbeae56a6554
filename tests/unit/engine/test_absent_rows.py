"""Changes whose row is not in the lake table: nothing is committed and it is said, in every mode and way of writing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest

from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.slice.absent_rows import may_lack_rows
from cdc_core.lake.slice.order import Replay
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.schema.fingerprint import Fingerprint, PublicationEntry, PublicationMark
from cdc_core.schema.table import TableId, TableSchema
from tests.support.damaged import KEYED, KEYLESS, ROW, append, every_change, filled, refused, row
from tests.support.one_table import OneTable, quarantined
from tests.support.spark import change

WAYS: dict[str, Callable[[OneTable], None]] = {
    "files are rewritten": lambda one: None,
    "rows are marked": OneTable.mark_rows,
    "in parts": lambda one: setattr(one, "writer", replace(one.writer, part_max_bytes=100)),
    "rows are marked in parts": lambda one: (
        one.mark_rows(),
        setattr(one, "writer", replace(one.writer, part_max_bytes=100)),
    )[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", DeleteMode)
def test_changes_of_rows_that_others_removed_or_gave_another_key(tmp_path: Path, mode: DeleteMode, way: str) -> None:
    one = filled(tmp_path, mode, KEYED, range(1, 40))
    WAYS[way](one)
    one.append(every_change(10, 1), 10)
    assert one.merge(10, token=1).applied is not None
    lake = deltalake.DeltaTable(one.lake)
    lake.delete("id between 11 and 15 or id between 31 and 34")
    lake.update({"id": "id + 1000"}, predicate="id between 21 and 25")
    one.append([*every_change(20, 6), *every_change(30, 11), *every_change(40, 21)], 40)
    error = refused(one, 40)
    assert (error.count, error.lsn, error.table) == (10, 30, "public.t")
    assert "10 rows" in error.message and "public.t" in error.message and "0/1E" in error.message
    # Up to there all is right: this is merged, and only then is it told again.
    assert one.merge(20, token=1).applied is not None
    assert refused(one, 40).count == 10


@pytest.mark.parametrize("way", WAYS)
def test_changes_of_a_table_without_a_key(tmp_path: Path, way: str) -> None:
    one = filled(tmp_path, DeleteMode.HARD, KEYLESS, [1, 1, 1, 2, 3, 4, 5])
    WAYS[way](one)
    one.append(
        [
            change("u", 10, 0, row(1), row(1)),
            change("u", 10, 1, row(2), row(2, "a")),
            change("u", 10, 2, row(2, "a"), row(2, "b")),
            change("c", 10, 3, None, row(9)),
            change("d", 10, 4, row(9)),
        ],
        10,
    )
    assert one.merge(10, token=1).applied is not None
    lake = deltalake.DeltaTable(one.lake)
    lake.delete("id in (1, 3, 4)")
    lake.update({"v": "'other'"}, predicate="id = 5")
    one.append(
        [
            change("d", 20, 0, row(1)),  # two of three that were there are missed
            change("d", 20, 1, row(1)),
            change("u", 20, 2, row(3), row(3, "new")),
            change("d", 20, 3, row(4)),
            change("c", 20, 4, None, row(4)),  # after it the table is right, but the row was not there before
            change("u", 30, 0, row(5), row(5)),
            change("d", 30, 1, row(2, "b")),
        ],
        30,
    )
    error = refused(one, 30)
    assert (error.count, error.lsn) == (5, 20)


def test_a_row_that_somebody_marked_as_deleted_or_ended_is_not_there(tmp_path: Path) -> None:
    for mode, ends in ((DeleteMode.SOFT, {"__deleted": "true"}), (DeleteMode.HISTORY, {"__current": "false"})):
        one = filled(tmp_path / mode.value, mode, KEYED, range(1, 4))
        if mode is DeleteMode.HISTORY:
            ends |= {"__valid_to_lsn": "2"}
        deltalake.DeltaTable(one.lake).update(ends, predicate="id = 2")
        one.append([change("u", 10, 0, None, row(1, "new")), change("d", 10, 1, {"id": 2})], 10)
        assert refused(one, 10).count == 1


@pytest.mark.parametrize("mode", DeleteMode)
def test_changes_without_an_earlier_insert_in_the_slice_itself(tmp_path: Path, mode: DeleteMode) -> None:
    """Behind a truncate, or a delete of the same key, no row of the lake can be the one."""
    for number, gone in enumerate(("t", "d")):
        one = filled(tmp_path / gone, mode, KEYED, [1, 2])
        removal = change(gone, 10, 0, None if gone == "t" else {"id": 1})
        one.append([removal, change("c", 10, 1, None, row(3)), change("u", 20, 0, None, row(3, "new"))], 20)
        assert one.merge(20, token=1).applied is not None, number
        again = change(gone, 30, 0, None if gone == "t" else {"id": 3})
        one.append([again, change("u", 40, 0, None, row(3, "later"))], 40)
        error = refused(one, 40)
        assert (error.count, error.lsn) == (1, 40)


def test_a_truncate_of_a_table_without_a_key(tmp_path: Path) -> None:
    one = filled(tmp_path, DeleteMode.HARD, KEYLESS, [1, 2])
    one.append([change("t", 10, 0), change("c", 10, 1, None, row(3)), change("d", 10, 2, row(1))], 10)
    assert (refused(one, 10).count, len(one.rows)) == (1, 2)


# What may be absent: the table in the docstring of ``lake/slice/absent_rows``, case by case.


def test_what_was_merged_before_or_is_shown_by_the_snapshot_is_not_expected(tmp_path: Path) -> None:
    one = filled(tmp_path, DeleteMode.HARD, KEYED, [1, 2])
    # The snapshot shows transaction 700, which moved row 7 to 2 and deleted 8; not 701.
    one.append(
        [
            change("u", 10, 0, {"id": 7}, row(2)),
            change("d", 10, 1, {"id": 8}),
            change("d", 20, 0, {"id": 1}, xid=701),
        ],
        20,
    )
    assert one.merge(20, token=1, visible="701:701:").applied is not None
    assert [each["id"] for each in one.rows] == [2]
    # The same changes again, with one that follows.
    one.append([change("u", 30, 0, None, row(2, "new"), xid=702)], 30)
    assert one.merge(30, token=1).applied is not None


def test_what_the_slice_has_written_itself_is_not_expected(tmp_path: Path) -> None:
    for table in (KEYED, KEYLESS):
        one = filled(tmp_path / str(len(table.primary_key)), DeleteMode.HARD, table, [1])
        one.append(
            [
                change("c", 10, 0, None, row(5)),
                change("u", 10, 1, row(5), row(6)),
                change("u", 20, 0, row(6), row(6, "new")),
                change("d", 20, 1, row(6, "new")),
                change("u", 30, 0, row(1), row(2)),
                change("u", 30, 1, row(2), row(1)),
            ],
            30,
        )
        assert one.merge(30, token=1).applied is not None
        assert [each["id"] for each in one.rows] == [1]


def test_a_row_of_the_same_or_a_later_position_is_there(tmp_path: Path) -> None:
    for mode in DeleteMode:
        one = filled(tmp_path / mode.value, mode, KEYED, [1, 2])
        deltalake.DeltaTable(one.lake).update({"__commit_lsn": "50"}, predicate="id = 2")  # as a repair writes it
        one.append([change("d", 10, 0, {"id": 1}), change("d", 10, 1, {"id": 2})], 10)
        assert one.merge(10, token=1).applied is not None


@pytest.mark.parametrize("table", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_rows_that_are_or_were_in_quarantine_may_be_absent(tmp_path: Path, table: TableSchema) -> None:
    one = filled(tmp_path, DeleteMode.HARD, table, [1])
    one.quality = QualityOptions(quality_rules=(("good", UserRule("public.t", "after.v <> 'bad'")),))
    append(one, [change("c", 10, n, None, row(n, "bad")) for n in (2, 3, 4)], 10)
    assert quarantined(one.merge(10, token=1)) == QuarantineReport(3)
    # One is deleted while it waits, the others after they were dropped.
    append(one, [change("d", 20, 0, row(2, "bad"))], 20)
    one.merge(20, token=1)
    append(one, [], 21)
    assert quarantined(one.merge(21, token=1, replay=Replay(drop=True))).dropped == 2
    append(one, [change("d", 30, 0, row(3, "bad")), change("u", 30, 1, row(4, "bad"), row(4))], 30)
    one.merge(30, token=1)
    assert sorted(each["id"] for each in one.rows) == [1, 4]
    # Others of the table are missed as ever.
    deltalake.DeltaTable(one.lake).delete("id = 1")
    append(one, [change("d", 40, 0, row(1)), change("d", 40, 1, row(3, "bad"))], 40)
    assert refused(one, 40).count == 1


@pytest.mark.parametrize("way", ["files are rewritten", "in parts"])
@pytest.mark.parametrize("table", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_a_row_that_is_refused_and_goes_in_one_slice_was_never_there(
    tmp_path: Path, table: TableSchema, way: str
) -> None:
    one = filled(tmp_path, DeleteMode.HARD, table, [1, 2])
    WAYS[way](one)
    one.quality = QualityOptions(quality_rules=(("good", UserRule("public.t", "after.v is distinct from 'bad'")),))
    append(
        one,
        [
            change("c", 10, 0, None, row(3, "bad")),
            change("d", 10, 1, row(3, "bad")),
            change("c", 10, 2, None, row(4, "bad")),
            change("u", 10, 3, row(4, "bad"), row(4)),
            change("u", 10, 4, row(1), row(5, "bad")),
            change("u", 10, 5, row(5, "bad"), row(6)),
            change("u", 10, 6, row(2), row(7, "bad")),
            change("d", 10, 7, row(7, "bad")),
        ],
        10,
    )
    done = one.merge(10, token=1)
    assert quarantined(done).waiting == 0 and sorted(each["id"] for each in one.rows) == [4, 6]


def test_a_value_that_would_have_to_be_taken_from_a_dropped_row_is_missed(tmp_path: Path) -> None:
    one = filled(tmp_path, DeleteMode.HARD, KEYED, [1])
    one.quality = QualityOptions(quality_rules=(("good", UserRule("public.t", "after.v <> 'bad'")),))
    append(one, [change("c", 10, 0, None, row(2, "bad"))], 10)
    one.merge(10, token=1)
    one.merge(11, token=1, replay=Replay(drop=True))
    append(one, [change("u", 20, 0, None, row(2, "good", None), ["t"])], 20)
    assert refused(one, 20).count == 1


def test_tables_that_need_not_have_every_row() -> None:
    def published(operations: str) -> TableSchema:
        mark = PublicationMark(1, "1", operations, False, "", (PublicationEntry("t", 2),))
        return replace(KEYED, fingerprint=Fingerprint("1", 1, "public", "t", 3, "d", False, (), (), publication=mark))

    assert may_lack_rows(KEYED, 7, ("t", "d"), {TableId("public", "other")}) == ""
    assert may_lack_rows(published("cud"), 7, (), ()) == ""
    assert "no snapshot" in may_lack_rows(KEYED, 0, (), ())
    assert "statement" in may_lack_rows(KEYED, 7, (), {KEYED.id})
    for skipped in ("c", "u"):
        assert "skipped.operations" in may_lack_rows(KEYED, 7, (skipped,), ())
    for operations in ("ud", "cd", "d"):
        assert "publication" in may_lack_rows(published(operations), 7, (), ())


def test_a_table_that_no_snapshot_has_filled_takes_changes_of_rows_it_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = OneTable(tmp_path, KEYED, ROW)
    append(one, [change("u", 10, 0, None, row(1)), change("d", 10, 1, {"id": 2})], 10)
    assert one.merge(10).applied is not None
    assert [each["id"] for each in one.rows] == [1] and not caplog.messages
    changes = [change("u", 20, 0, None, row(3, "new", None), ["t"]), change("u", 20, 1, None, row(1), ["t"])]
    append(one, changes, 20)
    assert one.merge(20).applied is not None
    (said,) = caplog.messages
    assert said.startswith("public.t: 1 rows") and "nulls in place of unchanged values" in said
