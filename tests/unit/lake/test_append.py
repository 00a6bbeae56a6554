"""Appends that anyone may repeat, and what is read back."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError, TransientError, UnreadableError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import COMPLETE, ChangelogPosition
from cdc_core.lake.rows.survey import in_order
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.lake.stores.changelog import between, beyond, last_schema_version, read_changes
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import OneTable
from tests.support.sampling import examples
from tests.support.spark import change


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    return OneTable(tmp_path, TABLE, ROW)


def stream(*sizes: int) -> list[tuple[int, int]]:
    """Positions of transactions of these sizes."""
    return [(10 + 2 * number, index) for number, size in enumerate(sizes) for index in range(size)]


def rows(*places: tuple[int, int]) -> list[dict[str, object]]:
    return [change("t", *place) for place in places]


def test_a_stream_in_any_cuts_with_any_repeats_is_there_once(tmp_path: Path) -> None:
    """Each append begins somewhere before the end of the former and ends anywhere, as a slot sends again."""
    chance = random.Random(5)
    for trial in range(examples(12)):
        one = OneTable(tmp_path / str(trial), TABLE, ROW)
        sizes = [chance.randint(1, 5) for _ in range(8)]
        places = stream(*sizes)
        ends = set(itertools.accumulate(sizes))
        end = 0
        while end < len(places):
            first = max(place for place in [0, *ends] if place <= end)
            first = chance.choice([place for place in [0, *ends] if place <= first])
            last = chance.randint(first + 1, len(places))
            wholes = [place for place in ends if first < place <= last]
            whole = places[max(wholes) - 1][0] if wholes else None
            cut = None if last in ends else places[last - 1]
            assert one.append(rows(*places[first:last]), whole, cut) == max(0, last - end)
            end = max(end, last)
            assert one.events == places[:end]
            held = one.changelog_position
            assert held == ((places[end - 1]) if end not in ends else (places[end - 1][0], COMPLETE))


def test_rows_beyond_a_position(one: OneTable) -> None:
    places = stream(2, 3, 1)
    made = one.changes(rows(*places))
    assert beyond(made, None).num_rows == 6
    assert beyond(made, ChangelogPosition(9, COMPLETE)).num_rows == 6
    assert beyond(made, ChangelogPosition(12, 1)).column("__tx_index").to_pylist() == [2, 0]
    assert beyond(made, ChangelogPosition(12, COMPLETE)).num_rows == 1
    assert beyond(made, ChangelogPosition(14, 0)).num_rows == 0
    assert beyond(made.slice(0, 0), ChangelogPosition(14, 0)).num_rows == 0


def test_changes_between_two_positions_leave_out_reads(one: OneTable) -> None:
    made = one.changes(rows((12, -1), (12, 0), (14, 0), (14, 1), (16, 0)))
    assert between(made, 12, 14).column("__commit_lsn").to_pylist() == [14, 14]
    assert between(made, 0, 12).column("__tx_index").to_pylist() == [0]


def test_the_version_of_the_last_change_is_that_of_the_greatest_position_in_any_file(one: OneTable) -> None:
    changelog = one.open_changelog()
    made = conform(one.changes(rows((12, 0), (12, 1), (14, 0))), changelog.schema)
    changelog.commit([changelog.write(made)], txns={})
    assert last_schema_version(changelog) == 0
    grown = changelog.schema.append(pa.field("__schema_version", pa.int64()))
    changelog = ensure_table(one.changelog, grown, TABLE.id, changelog_properties(1), DeltaTable.open(one.changelog))
    for places, number in (([(16, 2), (16, 3)], 3), ([(16, 0), (16, 1)], 2), ([(15, 0)], 4)):
        made = one.changes(rows(*places)).append_column("__schema_version", pa.array([number] * len(places)))
        changelog.commit([changelog.write(conform(made, changelog.schema))], txns={})
    assert last_schema_version(changelog) == 3


def test_rows_are_put_in_the_order_of_the_stream(one: OneTable) -> None:
    places = stream(3, 4, 2)
    mixed = random.Random(2).sample(places, len(places))
    found = in_order(one.changes(rows(*mixed)))
    assert (
        list(zip(*[found.column(name).to_pylist() for name in ("__commit_lsn", "__tx_index")], strict=True)) == places
    )
    ready = one.changes(rows(*places))
    assert in_order(ready) is ready


def test_files_outside_of_the_range_are_not_opened(one: OneTable) -> None:
    for lsn in (10, 20, 30):
        one.append(rows((lsn, 0), (lsn + 1, 0)), lsn + 1)
    changelog = one.open_changelog()
    low = [file for file in changelog.files if file.maximum["__commit_lsn"] == 11]
    Path(changelog.path, low[0].path).unlink()
    assert read_changes(changelog, 11, 30).column("__commit_lsn").to_pylist() == [20, 21, 30]
    with pytest.raises(UnreadableError):
        read_changes(changelog, 10, 30)


def test_conflicts_are_tried_again_a_bounded_number_of_times(one: OneTable) -> None:
    table, tries = one.open_changelog(), []

    def attempt() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise CommitConflictError()
        return "done"

    assert on_conflict(attempt, table) == "done" and len(tries) == 3

    def never() -> None:
        tries.append(1)
        raise CommitConflictError()

    tries.clear()
    with pytest.raises(TransientError, match="8 commits conflicted") as caught:
        on_conflict(never, table)
    assert len(tries) == 8 and not isinstance(caught.value, CommitConflictError)
