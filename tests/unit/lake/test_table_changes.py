"""Changes between two positions, as their readers get them: of one epoch and of two, and after some were removed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.errors import LakeError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epochs_of
from cdc_core.lake.maintenance.retention import DAY_US, expire_changes
from cdc_core.lake.readers.table_changes import ChangePosition, TableChanges
from cdc_core.lsn import Lsn
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import OneTable
from tests.support.spark import AT, change, lake_schema
from tests.unit.lake.test_epochs import LATER, SLOT, T, append

NOW = int(AT.timestamp() * 1_000_000)


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    return OneTable(tmp_path, TABLE, ROW)


def changes_of(one: OneTable, scope: str) -> TableChanges:
    return TableChanges(T, one.changelog, one.lake, scope)


def places(rows: pa.Table) -> list[tuple[int, int, int]]:
    numbers = epochs_of(rows).tolist()
    columns = (rows.column(name).to_pylist() for name in ("__commit_lsn", "__tx_index"))
    return list(zip(numbers, *columns, strict=True))


def rows(*wanted: tuple[int, int]) -> list[dict[str, object]]:
    return [change("t", *place) for place in wanted]


def test_changes_after_a_position_up_to_another_in_the_order_of_the_stream(one: OneTable) -> None:
    append(one, SLOT, rows((20, 0), (20, 1)), 20)
    append(one, SLOT, rows((10, -1), (30, 0), (40, 0)), 40)
    changes = changes_of(one, SLOT)
    assert (changes.oldest, changes.newest) == (ChangePosition(0, 0), ChangePosition(0, 40))
    assert places(changes.arrow()) == [(0, 20, 0), (0, 20, 1), (0, 30, 0), (0, 40, 0)]
    assert places(changes.arrow(Lsn(20), Lsn(30))) == [(0, 30, 0)]
    assert places(changes.arrow(Lsn(40))) == places(changes.arrow(Lsn(40), Lsn(10))) == []


def test_an_incomplete_transaction_is_returned_later(one: OneTable) -> None:
    one.append(rows((20, 0), (30, 0)), 20, (30, 0))
    assert places(changes_of(one, SLOT).arrow()) == [(0, 20, 0)]
    one.append(rows((30, 1)), 30)
    assert places(changes_of(one, SLOT).arrow(Lsn(20))) == [(0, 30, 0), (0, 30, 1)]


def test_changes_of_a_later_epoch_follow_those_of_the_former(one: OneTable) -> None:
    append(one, SLOT, rows((20, 0), (30, 0)), 30)
    append(one, LATER, rows((5, 0), (25, 0)), 25)
    changes = changes_of(one, LATER)
    assert changes.newest == (1, 25)
    whole = [(0, 20, 0), (0, 30, 0), (1, 5, 0), (1, 25, 0)]
    assert places(changes.arrow()) == whole
    start, end = ChangePosition(0, 20), ChangePosition(1, 5)
    found = changes.batches(start, end, changes.schema, set(changes.files(start, end)))
    assert sorted(places(pa.Table.from_batches(found))) == [(0, 30, 0), (1, 5, 0)]
    # An LSN is one of the present epoch.
    assert places(changes.arrow(Lsn(5))) == [(1, 25, 0)]


def test_changes_that_were_removed_are_an_error_and_not_left_out(one: OneTable) -> None:
    append(one, SLOT, rows((20, 0), (30, 0)), 30)
    assert expire_changes(one.changelog, SLOT, T, 20, NOW + 3 * DAY_US, 1) is not None
    append(one, SLOT, rows((40, 0)), 40)
    changes = changes_of(one, SLOT)
    assert changes.oldest == ChangePosition(0, 20)
    assert places(changes.arrow()) == places(changes.arrow(Lsn(20))) == [(0, 30, 0), (0, 40, 0)]
    with pytest.raises(LakeError, match=r"after 0/13 were removed from its changelog, up to 0/14\."):
        changes.arrow(Lsn(19))
    # A new epoch removes all changes of the former by their age; those of the former's readers are known, too.
    append(one, LATER, rows((5, 0)), 5)
    assert expire_changes(one.changelog, LATER, T, None, NOW + 3 * DAY_US, 1) is not None
    later = changes_of(one, LATER)
    assert later.oldest == ChangePosition(0, 40)
    assert places(later.arrow()) == [(1, 5, 0)]
    with pytest.raises(LakeError, match="were removed"):
        later.files(ChangePosition(0, 30), later.newest)


def test_a_table_without_a_change_has_the_columns_of_its_first_one(one: OneTable) -> None:
    changes = changes_of(one, SLOT)
    with pytest.raises(LakeError, match="The lake has no table"):
        changes.arrow()
    DeltaTable.create(one.lake, lake_schema(one.row), {})
    before = changes_of(one, SLOT)
    assert before.arrow().num_rows == 0 and before.identity == ""
    append(one, SLOT, rows((20, 0)), 20)
    assert changes_of(one, SLOT).schema == before.schema
