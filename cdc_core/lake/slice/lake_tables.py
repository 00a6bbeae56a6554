"""Brings lake tables into the schema version of an order, in a task."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_core import failpoints
from cdc_core.errors import LakeError
from cdc_core.lake.delete_columns import check_mode
from cdc_core.lake.delete_modes import DeleteModes
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.definition import Definition
from cdc_core.lake.delta.opened import keep, opened, opened_to_commit
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.positions import epoch_app, schema_version_app
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.evolve import evolve
from cdc_core.lake.schema.features import FeaturePolicy, features_on, require_writable
from cdc_core.lake.schema.lake_schema import ensure_table, lake_properties, lake_schema
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.schema import DeltaFeature
from cdc_core.worker_memory import MEMORY

# What each table was prepared for, and what it was then: unless either differs, there is nothing to prepare.
_prepared: dict[str, tuple[object, Definition, tuple[str, ...]]] = MEMORY.part()


@dataclass(frozen=True, slots=True)
class PreparedTable:
    """A lake table, and the features that it has got for its present schema version."""

    lake: DeltaTable
    enabled: frozenset[DeltaFeature]


@dataclass(frozen=True, slots=True)
class LakeTables:
    """Creates lake tables and changes their schemas; picklable."""

    history_minutes: int
    features: FeaturePolicy = field(default_factory=FeaturePolicy)
    modes: DeleteModes = field(default_factory=DeleteModes)

    @classmethod
    def of(cls, options: LakeOptions) -> LakeTables:
        """Create it from the options."""
        return cls(options.lake_history_minutes, FeaturePolicy.of(options), options.delete_modes)

    def prepare(self, run: str, path: str, target: TargetSchema, plan: TypingPlan, scope: str) -> PreparedTable:
        """Return the lake table in the wanted schema version; creates it if it does not exist.

        Raises TableError if it cannot have the schema, or another program made it one that cannot be written.
        """
        source, app = target.table, schema_version_app(scope, target.table.id)
        current = opened_to_commit(run, path)
        asked = (self, target, plan, scope)
        if current is not None and _prepared.get(path) == (asked, current.definition, current.clustered_by):
            return PreparedTable(current, frozenset())
        mode = self.modes.of(source.id)
        before = frozenset[DeltaFeature]()
        if current is not None:
            lake, before = current, features_on(current)
            require_writable(lake, source.id)
            check_mode(lake.schema, mode, source.id)
            on_conflict(lambda: self._evolve(lake, target, app), lake)
        schema = lake_schema(plan.typer(source).row_type, mode)
        properties = lake_properties(self.history_minutes)
        made = keep(run, ensure_table(path, schema, source.id, properties, current))
        if target.schema_version and made.txn(app) is None:
            # An empty table begins in this epoch; one with rows has got its epoch with its snapshot.
            begins = epoch_of(scope) and not made.files
            own = {epoch_app(source.id): epoch_of(scope)} if begins else {}
            on_conflict(lambda: made.commit(txns={app: target.schema_version, **own}), made)
        on_conflict(lambda: self.features.enable_missing(made, source), made)
        _prepared[path] = (asked, made.definition, made.clustered_by)
        return PreparedTable(made, features_on(made) - before)

    def _evolve(self, lake: DeltaTable, target: TargetSchema, app: str) -> None:
        """Apply the steps that have not been applied to the table yet."""
        taken = lake.txn(app) or 0
        steps = [step for step in target.steps if step.number > taken]
        if steps:
            failpoints.hit(failpoints.DURING_EVOLUTION)
            told = {"schemaVersion": str(target.schema_version)}
            evolve(lake, steps, self.features.evolution(lake, steps), app, told)
            failpoints.hit(failpoints.AFTER_EVOLUTION)


def existing(path: str) -> DeltaTable:
    """Return the Delta table at a path. Raises LakeError if there is none."""
    return _required(DeltaTable.open(path), path)


def opened_existing(run: str, path: str) -> DeltaTable:
    """As ``existing``, for the table that a run may have open already."""
    return _required(opened(run, path), path)


def _required(table: DeltaTable | None, path: str) -> DeltaTable:
    if table is None:
        raise LakeError(f"The Delta table {path} no longer exists.", "Take a new snapshot of the table.")
    return table
