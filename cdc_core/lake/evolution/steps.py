"""How rows of one schema version of a table become rows of the next: the steps between a table's versions.

Nothing is decided or stored here: the versions and the steps known so far are in ``TableVersions``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from cdc_core.lake.evolution.table_versions import TableVersions
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.project import SchemaStep, StepColumn, own_columns
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.schema.view import SchemaView
from cdc_core.lake.stores.schema_log import SchemaVersion
from cdc_core.schema import Column, Projected, TableId, TableSchema, same_columns, same_layout
from cdc_core.selection import EXCLUDED, plan_columns
from cdc_core.types import resolve


class SchemaSteps:
    """``lake_schema`` returns the present schema of a lake table, None if it does not exist."""

    def __init__(self, plan: TypingPlan, lake_schema: Callable[[TableId], pa.Schema | None]) -> None:
        self._plan = plan
        self._lake_schema = lake_schema

    def target(
        self, state: TableVersions, table: TableSchema, since: Mapping[str, int], *, is_mixed: bool
    ) -> TargetSchema:
        """Return the schema version decided last, for a lake table whose source is described by ``table``.

        ``is_mixed``: there may be change rows of other schema versions. ``since`` as in ``TargetSchema``.
        """
        number = 0 if state.schema_version is None else state.schema_version.number
        return TargetSchema(table, number, state.pending, self.views(state) if is_mixed else {}, since)

    def views(self, state: TableVersions) -> dict[int, SchemaView]:
        """Return how to read change rows of each schema version that the table has had."""
        if state.schema_version is None:
            return {}
        target, views = state.schema_version, {}
        for number, schema_version in state.schema_versions.items():
            steps = self.way(state, number, target)
            views[number] = SchemaView(self.captured(schema_version.table), schema_version.table, steps)
        return views

    def way(self, state: TableVersions, number: int, target: SchemaVersion) -> tuple[SchemaStep, ...] | None:
        """Return the steps from a version to ``target``: none if rows of both are read alike, None without a way."""
        if number == target.number:
            return ()
        schema_version, steps, at = state.schema_versions[number].table, list[SchemaStep](), target
        # From parent to parent: a schema version that was decided but never applied is not an ancestor of the target.
        while at.parent is not None and at.number != number:
            step = state.steps.get(at.number) or self._stored_step(state, at.number)
            if step is None:
                break
            steps.append(step)
            at = state.schema_versions[at.parent]
        if at.number == number:
            return tuple(reversed(steps))
        return () if same_layout(schema_version, target.table) and same_columns(schema_version, target.table) else None

    def has_ways(self, state: TableVersions, last: SchemaVersion) -> bool:
        """Whether rows of all versions after ``last``, which was decided last, can be read as rows of it."""
        later = [number for number in state.schema_versions if number > last.number]
        return all(self.way(state, number, last) is not None for number in later)

    def step(
        self, state: TableVersions, name: TableId, schema_version: SchemaVersion, projection: Sequence[Projected]
    ) -> SchemaStep:
        """Return the step to a schema version from its parent, by the version's projection."""
        types = {field.name: field.type for field in self._lake_fields(state, name, schema_version.parent or 0)}
        before = state.schema_versions.get(schema_version.parent or 0)
        if schema_version.number <= state.in_force and before is not None:
            # A step of an earlier run: the lake table has changed since, and its names may now be those of other
            # columns.
            types |= {column.name: self.lake_type(column) for column in before.table.columns}
        columns = []
        for projected in projection:
            if projected.column is None:
                kind = types.get(projected.source or "", pa.string())
                columns.append(StepColumn(projected.name, projected.source, kind))
                continue
            natural = resolve(projected.column, self._plan.types).natural
            value = text = None
            if projected.source is None and projected.fill is not None:
                converted = natural.convert(pa.array([projected.fill], pa.string()))
                value = converted.values[0]
                text = projected.fill if not value.is_valid else None
            columns.append(StepColumn(projected.name, projected.source, natural.arrow_type, value, text))
        return SchemaStep(schema_version.number, tuple(columns))

    def lake_columns(self, state: TableVersions, table: TableId) -> list[str]:
        """Return the names of the lake table's data columns in the schema version decided last."""
        number = 0 if state.schema_version is None else state.schema_version.number
        return [field.name for field in self._lake_fields(state, table, number)]

    def masked(self, columns: Sequence[Projected], table: TableSchema) -> tuple[Projected, ...]:
        """Return the projection with the constants of masked columns masked: it is stored, as the lake's rows are."""
        mappers = {plan.name: plan.mapper for plan in plan_columns(table, self._plan.selection)}
        out = []
        for projected in columns:
            mapper, fill = mappers.get(projected.name), projected.fill
            if mapper is not None and fill is not None and projected.source is None:
                fill = mapper(pa.array([fill], pa.string()))[0].as_py()
            # The value for older rows is only in ``fill``.
            bare = None if projected.column is None else dataclasses.replace(projected.column, missing=None)
            out.append(dataclasses.replace(projected, fill=fill, column=bare))
        return tuple(out)

    def captured(self, table: TableSchema) -> tuple[str, ...]:
        """Return the names of the captured columns."""
        return tuple(plan.name for plan in plan_columns(table, self._plan.selection) if plan.included)

    def treatments(self, table: TableSchema) -> dict[str, str]:
        """Return what becomes of the values of each column by its name (``TypingPlan.treatments``)."""
        return self._plan.treatments(table)

    def treated_otherwise(self, base: TableSchema, table: TableSchema) -> list[str]:
        """Return columns of ``table`` whose values in rows of ``base`` were masked or truncated otherwise.

        As after a rename to a name that an option lists, or with a hash that is cut to another length.
        """
        before, after = self.treatments(base), self.treatments(table)
        old = {column.attnum: before[column.name] for column in base.columns if column.attnum}
        new = {column.attnum: (column.name, after[column.name]) for column in table.columns if column.attnum}
        return [name for number, (name, now) in new.items() if now != EXCLUDED and old.get(number, now) != now]

    def lake_type(self, column: Column) -> pa.DataType:
        """Return the type that a column has in the lake."""
        return resolve(column, self._plan.types).natural.arrow_type

    def _lake_fields(self, state: TableVersions, table: TableId, before: int) -> list[pa.Field]:
        """Return the lake table's data columns after the step ``before``; without such a step, its current ones."""
        step = state.steps.get(before)
        if step is not None and before > state.in_force:
            return [pa.field(column.name, column.type) for column in step.columns]
        schema = self._lake_schema(table)
        if schema is None:
            decided = () if state.schema_version is None else state.schema_version.table.columns
            return [pa.field(column.name, self.lake_type(column)) for column in decided]
        own = own_columns(schema)
        return [field for field in schema if field not in own]

    def _stored_step(self, state: TableVersions, number: int) -> SchemaStep | None:
        """Return the step of a schema version that an earlier run stored."""
        schema_version = state.schema_versions.get(number)
        if schema_version is None or schema_version.projection is None:
            return None
        return self.step(state, schema_version.table.id, schema_version, schema_version.projection)
