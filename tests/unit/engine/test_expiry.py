"""Which changes stay in a changelog although they are old: those that something still reads after their merge."""

from pathlib import Path
from typing import Any

import pytest

from cdc_core.clock import DAY_US
from cdc_core.engine.round import expiry
from cdc_core.engine.round.expiry import Expiry
from cdc_core.engine.round.merge_state import MergeState
from cdc_core.lake.evolution.table_versions import TableVersions
from cdc_core.selection.by_table import NumberByTable
from tests.delta.source_model import ROW, TABLE
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import AT, change

T = TABLE.id


def put(lsn: int, key: str) -> dict[str, Any]:
    return change("c", lsn, 0, None, {"h": 0, "k": key, "v": 1, "big": "b", "num": None, "__rescued": None})


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OneTable:
    monkeypatch.setattr(expiry, "now_us", lambda: int(AT.timestamp() * 1e6) + 9 * DAY_US)
    made = OneTable(tmp_path, TABLE, ROW)
    made.append([put(lsn, str(lsn)) for lsn in (10, 20, 30, 40)], 40)
    made.merge(30)
    return made


def left(
    one: OneTable, needed: dict[Any, int] | None = None, days: NumberByTable | None = None, **state: Any
) -> list[int]:
    """The LSNs of the changes that stay."""
    states: Any = [(T, MergeState(**{"versions": TableVersions(), "merged": 30, "shown": 30, **state}))]
    Expiry(one.paths, SLOT, states, days or NumberByTable(1)).between_rounds(needed)
    return [lsn for lsn, _ in one.events]


def test_merged_changes_go(one: OneTable) -> None:
    assert left(one) == [40]


@pytest.mark.parametrize(
    ("default", "named", "stay"),
    [
        (1, [("30", ("other", f"{T.schema}\\.{T.table}"))], [10, 20, 30, 40]),
        (0, [("1", (".*",)), ("0", (".*",))], [40]),
        (1, [("0", (".*",))], [10, 20, 30, 40]),
        (1, [("30", ("other",))], [40]),
    ],
)
def test_a_table_has_the_days_of_the_first_property_that_matches(
    one: OneTable, default: int, named: Any, stay: list[int]
) -> None:
    assert left(one, days=NumberByTable.of(default, named)) == stay


@pytest.mark.parametrize(("scanned", "stay"), [(0, [10, 20, 30, 40]), (15, [20, 30, 40]), (20, [30, 40]), (99, [40])])
def test_what_an_incremental_snapshot_still_reads_stays(one: OneTable, scanned: int, stay: list[int]) -> None:
    assert left(one, {T: scanned}) == stay


def test_changes_of_a_table_that_is_read_again_stay(one: OneTable) -> None:
    assert left(one, versions=TableVersions(reread="its columns were changed")) == [10, 20, 30, 40]


def test_changes_before_the_first_merge_into_a_snapshot_stay(one: OneTable) -> None:
    assert left(one, merged=None, shown=None) == [10, 20, 30, 40]
