"""Which tables are left out of a comparison, and why: decided from the lake's records."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc_core.errors import LakeError, NotComparableError
from cdc_core.lake.compare.target import Records
from cdc_core.lake.delete_modes import DeleteModes
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.stores.schema_log import Pause, SchemaVersion, TableHistory
from cdc_core.schema.table import Column
from cdc_core.selection.options import SelectionOptions
from cdc_core.snapshot.options import SnapshotOptions
from cdc_core.types.options import TypeOptions
from tests.delta.source_model import TABLE
from tests.support.one_table import SLOT, OneTable

PLAN = TypingPlan(TypeOptions(), SelectionOptions())
TYPER = PLAN.typer(TABLE)
NONE = {each.name: None for each in TYPER.row_type}


@pytest.fixture
def one(tmp_path):
    one = OneTable(tmp_path, TABLE, TYPER.row_type)
    one.snapshot(50, [NONE | {"h": 1, "k": "a"}], lsn=50, schema_version=1)
    return one


def records(one, **more):
    usual = {
        "skipped": frozenset(),
        "histories": {TABLE.id: TableHistory({1: SchemaVersion(1, TABLE)})},
        "snapshots": {},
    }
    return Records(one.paths, SLOT, PLAN, DeleteModes(), SnapshotOptions().statement_of, **{**usual, **more})


def test_a_table_in_the_lake_is_compared(one):
    found = records(one).target(TABLE)
    assert found.version.place.token == 50
    assert found.compared.names == ["h", "k", "v", "big", "num"]
    assert found.left_out == ()


def test_tables_that_are_left_out(one):
    pause = Pause("its key was dropped", "Add one.", 60, datetime(2026, 1, 1, tzinfo=UTC))
    other = replace(TABLE, columns=TABLE.columns[:-1])
    for given, reason in (
        ({"skipped": frozenset("d")}, "skipped.operations"),
        ({"histories": {TABLE.id: TableHistory({1: SchemaVersion(1, TABLE)}, paused=pause)}}, "its key was dropped"),
        (
            {"histories": {TABLE.id: TableHistory({1: SchemaVersion(1, TABLE)}, reread=(1, "it was rewritten"))}},
            "read again",
        ),
        ({"histories": {TABLE.id: TableHistory({1: SchemaVersion(1, other)})}}, "altered"),
    ):
        with pytest.raises(NotComparableError) as raised:
            records(one, **given).target(TABLE)
        assert reason in raised.value.message


def test_a_lake_table_without_a_captured_column_is_an_error(one):
    wider = replace(TABLE, columns=(*TABLE.columns, Column("later", TABLE.columns[0].type)))
    with pytest.raises(LakeError, match="lacks columns that are captured: later"):
        records(one, histories={TABLE.id: TableHistory({1: SchemaVersion(1, wider)})}).target(wider)


def test_a_lake_table_that_is_not_there(tmp_path):
    one = OneTable(tmp_path, TABLE, TYPER.row_type)
    with pytest.raises(NotComparableError, match="no lake table yet"):
        records(one, histories={}).target(TABLE)
    with pytest.raises(LakeError, match="no longer exists"):
        records(one).target(TABLE)
