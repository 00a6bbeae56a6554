"""A large slice over several tasks: neighbouring files each, joined in their order; work shared out by weight."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cdc_core.errors import LostFolderError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.jobs import fit_together
from cdc_core.lake.slice.order import MergeOrder, SliceOrder, SpoolFiles, WrittenFiles
from cdc_core.lake.slice.outcome import SliceOutcome
from cdc_core.lake.slice.part import PartOutcome, bytes_of, cut, joined, large_among
from cdc_core.schema.table import TableId
from cdc_core.spark.tasks import balanced
from tests.delta.source_model import KEYLESS, TABLE
from tests.support.sampling import examples

FILES = tuple((0, f"file {number}") for number in range(7))


def order_of(rows: int, files: tuple[tuple[int, str], ...] = FILES) -> SliceOrder:
    """An order to append files."""
    return SliceOrder(TargetSchema(TABLE), append=SpoolFiles(files, rows, Reached(5)))


def files_of(folder: Path, sizes: list[int]) -> tuple[tuple[int, str], ...]:
    found = []
    for number, octets in enumerate(sizes):
        path = folder / f"file {number}"
        path.write_bytes(b"x" * octets)
        found.append((0, str(path)))
    return tuple(found)


@pytest.mark.parametrize(("parts", "expected"), [(1, 1), (2, 2), (3, 3), (7, 7), (20, 7)])
def test_files_are_cut_into_neighbours(parts: int, expected: int, tmp_path: Path) -> None:
    files = files_of(tmp_path, [100] * 7)
    found = cut(order_of(7_000_000, files), parts, 10_000)
    assert len(found) == expected and all(part.files for part in found)
    assert tuple(file for part in found for file in part.files) == files
    assert [part.number for part in found] == list(range(expected))
    sizes = [len(part.files) for part in found]
    assert max(sizes) - min(sizes) <= 1
    assert all(part.order.files == () and part.order.schema.table is TABLE for part in found), (
        "a part carries its own files"
    )


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(sizes=[90] * 10, parts=1)
@given(sizes=st.lists(st.integers(0, 90), min_size=1, max_size=30), parts=st.integers(1, 8))
def test_a_part_is_in_memory_unless_one_file_is_not(sizes: list[int], parts: int, tmp_path: Path) -> None:
    files = files_of(tmp_path, sizes)
    found = cut(order_of(1_000, files), parts, 270)
    assert tuple(file for part in found for file in part.files) == files
    assert all(bytes_of(part.files) <= 270 for part in found), "no file has more than a third of it"
    assert all(part.files for part in found)


def outcome(table: TableId, number: int, arrived: bool = True) -> PartOutcome:
    made = DataFile(f"{table} {number}", 1, 1)
    return PartOutcome(table, number, (made,), DataFile(f"lake {number}", 1, 1) if arrived else None)


def test_parts_are_joined_in_stream_order_whatever_order_they_end_in() -> None:
    found: list[SliceOutcome | PartOutcome] = [outcome(TABLE.id, number) for number in (2, 0, 3, 1)]
    found += [outcome(KEYLESS.id, 0), SliceOutcome(TableId("public", "other"))]
    random.Random(1).shuffle(found)
    order = joined(order_of(4), found)
    assert isinstance(order.append, WrittenFiles)
    assert [file.path for file in order.append.written] == [f"{TABLE.id} {number}" for number in range(4)]
    assert [file.path for file in order.append.arrived] == [f"lake {number}" for number in range(4)]


def test_lake_files_are_used_only_where_every_part_has_one() -> None:
    found = [outcome(TABLE.id, 0), outcome(TABLE.id, 1, arrived=False)]
    order = joined(order_of(0), found)
    assert isinstance(order.append, WrittenFiles)
    assert len(order.append.written) == 2 and order.append.arrived == ()


def test_work_is_shared_out_by_weight() -> None:
    found = balanced([1, 1, 1, 1, 10, 4, 4], float, 3)
    assert sorted(sum(group) for group in found) == [6, 6, 10]
    assert sorted(each for group in found for each in group) == [1, 1, 1, 1, 4, 4, 10]


@pytest.mark.parametrize(("items", "groups"), [(0, 3), (1, 3), (3, 3), (50, 4), (5, 0)])
def test_no_group_is_empty_and_nothing_is_lost(items: int, groups: int) -> None:
    found = balanced(list(range(items)), lambda item: 1.0, groups)
    assert sorted(each for group in found for each in group) == list(range(items))
    assert all(found) and len(found) == min(items, max(groups, 1))


def test_no_group_is_much_heavier_than_it_must_be() -> None:
    chance = random.Random(3)
    weights = [chance.randint(1, 100) for _ in range(200)]
    found = balanced(weights, float, 8)
    loads = [sum(group) for group in found]
    assert max(loads) <= sum(weights) / 8 + max(weights)


def test_slices_wait_together_if_all_their_rows_fit_the_memory(tmp_path: Path) -> None:
    files = files_of(tmp_path, [100] * 3)
    orders = [order_of(3, files[:2]), order_of(3, files[2:])]
    assert fit_together(orders, 300)
    assert not fit_together(orders, 299)
    backlog = SliceOrder(TargetSchema(TABLE), merge=MergeOrder(5, has_backlog=True))
    assert fit_together([*orders, backlog], 300), "a backlog is merged beside the others"


def test_removed_files_are_reported_before_a_task_reads_them(tmp_path: Path) -> None:
    files = files_of(tmp_path, [100] * 3)
    Path(files[1][1]).unlink()
    with pytest.raises(LostFolderError, match="removed or is not accessible"):
        large_among([order_of(3, files)], 1_000, 10_000)
    with pytest.raises(LostFolderError, match="removed or is not accessible"):
        cut(order_of(3, files), 2, 10_000)
