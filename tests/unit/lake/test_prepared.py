"""A worker prepares a lake table for its slices once, and again when another program has changed what the table is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.features import FeaturePolicy, announce, enabled, features_on
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.lake_tables import LakeTables
from cdc_core.schema import DeltaFeature
from cdc_core.selection.options import SelectionOptions
from cdc_core.types import TypeOptions
from cdc_core.worker_memory import MEMORY
from tests.delta.source_model import TABLE
from tests.support.one_table import SLOT

PLAN = TypingPlan(TypeOptions(), SelectionOptions())
CLUSTERED = LakeTables(0, FeaturePolicy(clustered=(".*",)))


@pytest.fixture
def prepare(tmp_path: Path) -> Any:
    MEMORY.serve("prepared")
    path = str(tmp_path / "t")

    def prepared(tables: LakeTables = CLUSTERED, target: TargetSchema | None = None) -> Any:
        return tables.prepare("prepared", path, target or TargetSchema(TABLE, 1), PLAN, SLOT)

    return prepared


def test_the_second_slice_gets_the_table_as_it_is(prepare: Any) -> None:
    first = prepare()
    assert first.enabled == {DeltaFeature.CLUSTERING}
    version = first.lake.version
    again = prepare()
    assert again.lake is first.lake and again.lake.version == version and not again.enabled


def test_what_another_program_forbids_is_noticed_by_the_next_slice(prepare: Any) -> None:
    plain = LakeTables(0)  # delta-rs cannot change a clustered table
    lake = prepare(plain).lake
    lake.raw().alter.add_constraint({"few": "v < 100"})
    with pytest.raises(TableError, match="CHECK constraint few"):
        prepare(plain)


def test_clustering_that_another_program_removed_is_set_again(prepare: Any) -> None:
    lake = prepare().lake
    columns = lake.clustered_by
    other = DeltaTable.open(lake.path)
    assert other is not None and columns
    other.commit(clustered_by=())
    assert prepare().lake.clustered_by == columns


def test_other_options_and_another_schema_version_are_not_what_was_prepared(prepare: Any) -> None:
    prepare(LakeTables(0))
    assert prepare().enabled == {DeltaFeature.CLUSTERING}
    wider = replace(TABLE, columns=(*TABLE.columns, replace(TABLE.columns[-1], name="added")))
    assert "added" in prepare(target=TargetSchema(wider, 2)).lake.schema.names


def test_a_table_that_was_removed_is_created_again(prepare: Any, tmp_path: Path) -> None:
    lake = prepare().lake
    (tmp_path / "t").rename(tmp_path / "gone")
    made = prepare().lake
    assert made.identity != lake.identity and deltalake.DeltaTable.is_deltatable(lake.path)
    assert pa.schema(made.schema).equals(lake.schema)


@pytest.mark.parametrize("feature", DeltaFeature)
def test_each_feature_can_be_enabled_and_is_announced(
    prepare: Any, feature: DeltaFeature, caplog: pytest.LogCaptureFixture
) -> None:
    lake = prepare(LakeTables(0)).lake
    lake.commit(definition=enabled(lake, [feature]))
    assert features_on(lake) == {feature}
    announce("public.t", [feature])
    assert f"Delta table feature {feature.value} was enabled" in caplog.text
