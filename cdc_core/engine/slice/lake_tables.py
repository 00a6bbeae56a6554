"""Brings lake tables into the schema version of an order: in a task where delta-rs can, otherwise by Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from cdc_core import failpoints
from cdc_core.engine.slice.order import TargetSchema
from cdc_core.errors import LakeError
from cdc_core.lake.delete_columns import check_mode
from cdc_core.lake.delete_modes import DeleteModes
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.conform import plain_schema
from cdc_core.lake.delta.opened import keep, opened
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.positions import epoch_app, schema_version_app
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.features import EvolutionMethod, FeaturePolicy, announce, writer_of
from cdc_core.lake.schema.lake_schema import ensure_table, lake_properties, lake_schema, merge_schemas
from cdc_core.lake.schema.project import Step, evolve
from cdc_core.spark.errors import received


@dataclass(frozen=True, slots=True)
class LakeTables:
    """Creates lake tables and changes their schemas; picklable. ``staging`` is a folder that Spark can read."""

    history_minutes: int
    staging: str
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    modes: DeleteModes = field(default_factory=DeleteModes)

    @classmethod
    def of(cls, options: LakeOptions, staging: Path) -> LakeTables:
        """Create it from the options."""
        return cls(options.lake_history_minutes, str(staging), FeaturePolicy.of(options), options.delete_modes)

    def prepare(self, run: str, path: str, wanted: TargetSchema, plan: TypingPlan, scope: str) -> DeltaTable | None:
        """Return the lake table in the wanted schema version; creates it if it does not exist.

        None if only Spark can change its schema, which only the driver can call (``evolve_with_spark``). Raises
        TableError if it cannot have the schema.
        """
        source, app = wanted.table, schema_version_app(scope, wanted.table.id)
        found, mode = opened(run, path), self.modes.of(source.id)
        if found is not None:
            check_mode(found.schema, mode, source.id)
            lake = found
            if not on_conflict(lambda: self._evolve(lake, wanted, app), lake):
                return None
        schema = lake_schema(plan.typer(source).row_type, mode)
        if found is not None and not writer_of(found).arrow_adds and _lacks(found, schema, wanted, app):
            return None
        properties = lake_properties(self.history_minutes)
        made = keep(run, ensure_table(path, schema, source.id, properties, found))
        if wanted.schema_version and made.txn(app) is None:
            # An empty table begins in this epoch; one with rows has got its epoch with its snapshot.
            begins = epoch_of(scope) and not made.files
            own = {epoch_app(source.id): epoch_of(scope)} if begins else {}
            on_conflict(lambda: made.commit(txns={app: wanted.schema_version, **own}), made)
        return made

    def evolve_with_spark(self, spark: Any, path: str, scope: str, wanted: TargetSchema, plan: TypingPlan) -> None:
        """Change the schema where ``prepare`` returned None. Raises TransientError on another writer's conflict."""
        from cdc_core.lake.spark.commit import cluster
        from cdc_core.lake.spark.evolve import adopt_by_spark, evolve_by_spark

        source, lake, app = wanted.table, existing(path), schema_version_app(scope, wanted.table.id)
        steps = _not_taken(lake, wanted, app)
        with received(f"changing the lake table of {source.id}"):
            if steps:
                evolution, told = self.features.evolution(lake, steps), {"schemaVersion": str(wanted.schema_version)}
                enabled = evolve_by_spark(spark, lake, steps, evolution, app, told, Path(self.staging))
                announce(str(source.id), enabled)
                failpoints.hit(failpoints.AFTER_EVOLUTION)
                lake.refresh()
            schema = lake_schema(plan.typer(source).row_type, self.modes.of(source.id))
            if _lacks(lake, schema, wanted, app):
                grown = merge_schemas(lake.schema, plain_schema(schema), source.id)
                txns = {app: wanted.schema_version} if wanted.schema_version else {}
                announce(str(source.id), adopt_by_spark(spark, lake, grown, txns, {"slot": scope}))
            lake.refresh()
            cluster(spark, path, self.features.cluster_by(lake, source))

    def enable_with_spark(self, spark: Any, path: str, wanted: TargetSchema) -> None:
        """Enable the features that the table is to have from the start."""
        from cdc_core.lake.spark.commit import enable_missing

        lake = existing(path)
        with received(f"setting Delta features of {wanted.table.id}"):
            enable_missing(spark, lake, self.features, wanted.table)

    def lacks_features(self, lake: DeltaTable, wanted: TargetSchema) -> bool:
        """Whether ``enable_with_spark`` has something to do."""
        return bool(self.features.missing(lake, wanted.table))

    def _evolve(self, lake: DeltaTable, wanted: TargetSchema, app: str) -> bool:
        """Apply the steps that have not been applied to the table yet; False, and nothing is changed, if Spark must."""
        steps = _not_taken(lake, wanted, app)
        if not steps:
            return True
        if self.features.evolution(lake, steps).method is not EvolutionMethod.ARROW:
            return False
        failpoints.hit(failpoints.DURING_EVOLUTION)
        evolve(lake, steps, app, {"schemaVersion": str(wanted.schema_version)})
        failpoints.hit(failpoints.AFTER_EVOLUTION)
        return True


def existing(path: str) -> DeltaTable:
    """Return the Delta table at a path. Raises LakeError if there is none."""
    return _required(DeltaTable.open(path), path)


def opened_existing(run: str, path: str) -> DeltaTable:
    """As ``existing``, for the table that a run may have open already."""
    return _required(opened(run, path), path)


def _required(found: DeltaTable | None, path: str) -> DeltaTable:
    if found is None:
        raise LakeError(f"The Delta table {path} no longer exists.", "Take a new snapshot of the table.")
    return found


def _not_taken(lake: DeltaTable, wanted: TargetSchema, app: str) -> list[Step]:
    taken = lake.txn(app) or 0
    return [step for step in wanted.steps if step.number > taken]


def _lacks(lake: DeltaTable, schema: pa.Schema, wanted: TargetSchema, app: str) -> bool:
    """Whether the version's number, or columns of a schema, are missing. Raises TableError if they cannot be added."""
    if wanted.schema_version and lake.txn(app) is None:
        return True
    plain = plain_schema(schema)
    return not plain.equals(lake.schema) and not merge_schemas(lake.schema, plain, wanted.table.id).equals(lake.schema)
