"""The shape of the source that each lake table has, and what is done when the source changes.

    Relation message with another shape ─▶ decide (schema/evolution) ─▶ FOLLOW   a step for the lake, at this position
    fingerprint in the catalogue changed ─▶                          ─▶ REREAD   only this table is re-read
                                                                     ─▶ REFUSE   only this table is paused

Events are appended to the changelog in all cases, each with the number of the shape under which it was decoded: no
table delays the others, and the changes to a table while it was paused or re-read are in its changelog, in order.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from cdc_core.engine.round.schema_state import TableShape
from cdc_core.errors import TableError
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.project import Step, StepColumn, own_columns
from cdc_core.lake.schema.view import View
from cdc_core.lake.stores.schema_log import History, Pause, Shape, ShapeLog
from cdc_core.schema.changes import Decision, PauseCause, Policy, Projected, SchemaChanges, Verdict, project
from cdc_core.schema.evolution import decide
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.plan import name_clash, row_key
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.selection.columns import plan_columns
from cdc_core.types.registry import resolve

_log = logging.getLogger(__name__)


class Catalogue(Protocol):
    """The queries to the source (``cdc_core.postgres.catalog.Catalog``)."""

    def current(self, name: TableId) -> TableSchema | None:
        """Return the table as it is now, with its fingerprint; None if it does not exist."""

    def fingerprints(self, oids: Iterable[int]) -> dict[int, Fingerprint]:
        """Return the fingerprints by oid."""


class Shapes:
    """The shapes of every table. For one thread."""

    def __init__(
        self,
        log: ShapeLog,
        catalogue: Catalogue,
        plan: TypingPlan,
        policy: Policy,
        lake_schema: Callable[[TableId], pa.Schema | None],
        *,
        reads_new_tables: bool = True,
    ) -> None:
        self._log = log
        self._catalogue = catalogue
        self._plan = plan
        self._policy = policy
        self._lake_schema = lake_schema
        self._reads_new_tables = reads_new_tables
        self._tables: dict[TableId, TableShape] = {}
        self._histories: dict[TableId, History] = log.read()
        self._is_poll_due = False

    @property
    def is_poll_due(self) -> bool:
        """Whether ``poll`` must run again because an earlier change of the stream replaced one that it had found."""
        return self._is_poll_due

    def open(self, table: TableId, in_force: int | None) -> TableShape:
        """Load the table's state; ``in_force`` is the number in its lake table's commits, None if there is none."""
        history = self._histories.get(table, History({}))
        state = TableShape(dict(history.shapes), in_force=in_force or 0, paused=history.paused)
        if in_force is not None and in_force in history.shapes:
            state.shape = history.shapes[in_force]
            state.seen = state.shape.table.fingerprint
        if history.reread is not None and (in_force or 0) <= history.reread[0]:
            state.reread, state.owed = (
                (history.reread[1], None) if history.paused is None else (None, history.reread[1])
            )
        self._tables[table] = state
        return state

    def reopen(self, table: TableId, in_force: int | None) -> TableShape:
        """Reload the state after the table was re-read."""
        self._histories = self._log.read()
        return self.open(table, in_force)

    def of(self, table: TableId) -> TableShape:
        """Return the table's state; raises KeyError if it was never opened."""
        return self._tables[table]

    def number(self, version: TableSchema, current: TableSchema | None, lsn: int, read_at: int | None) -> int:
        """Return the number of the shape of a table version. Decides about a new shape, and stores the decision.

        ``current`` is the catalogue's description at the time of the Relation message, None if the table no longer
        existed. ``lsn`` is that of the version's first rows, ``read_at`` that of the snapshot in force: a table that is
        not in the lake and was never read is read.
        """
        state = self._tables[version.id]
        if version.version not in state.by_version:
            is_unknown = state.shape is None and not state.shapes
            state.by_version[version.version] = self._number(state, version, current, lsn, read_at)
            if is_unknown and read_at is None and self._reads_new_tables:
                self.want_reread(
                    version.id,
                    "it was added to the captured tables, and its existing rows are not in the lake",
                    is_first=True,
                )
        return state.by_version[version.version]

    def adopt(self, table: TableSchema, wal_lsn: Callable[[], int]) -> Shape:
        """Store a description as the first shape of a table that is not in the lake yet."""
        return self._add(self._tables[table.id], table.id, table, None, wal_lsn())

    def views(self, table: TableId) -> dict[int, View]:
        """Return how to read change rows of each shape that the table has had."""
        state = self._tables[table]
        if state.shape is None:
            return {}
        target, found = state.shape, {}
        for number, shape in state.shapes.items():
            steps = self._way(state, number, target)
            found[number] = View(self._captured(shape.table), shape.table, steps)
        return found

    def poll(self, wal_lsn: Callable[[], int]) -> None:
        """Check if fingerprints in the catalogue changed without a Relation message. Two queries for all tables."""
        self.find_returned()
        # A table that was renamed to another captured name is known by both names.
        known = [
            (state.shape.table.oid, table, state)
            for table, state in self._tables.items()
            if state.shape is not None and state.reread is None
        ]
        for table, state in self._tables.items():
            if state.shape is None and state.paused is not None:
                self._look_at_paused(table, state, state.paused)
        marks = self._catalogue.fingerprints({oid for oid, _, _ in known})
        self._is_poll_due = False
        for oid, table, state in known:
            found = marks.get(oid)
            if state.paused is not None:
                self._look_at_paused(table, state, state.paused)
                continue
            # A table that no longer exists may be created again at any time.
            is_known = found is not None and found == state.seen and state.seen.is_exact
            if is_known and found is not None and not (state.seen and state.seen.may_have_been_renamed(found)):
                continue
            self._look(table, state, found, wal_lsn)

    def settle(self, passed: int) -> list[TableId]:
        """Apply the plans whose LSN the stream has passed without a change of a row; returns their tables."""
        done = []
        for table, state in self._tables.items():
            if state.waiting is None or state.waiting[0] > passed or state.holds_back:
                continue
            lsn, decision = state.waiting
            state.waiting = None
            self._follow(table, state, decision, lsn)
            done.append(table)
        return done

    def can_go_on(self, table: TableId) -> bool:
        """Whether a paused table's changes can be merged with its source's current shape, without a re-read.

        Raises TableError if the cause of the pause still exists.
        """
        state = self._tables[table]
        if state.shape is None or state.reread is not None or state.owed is not None:
            return False
        decision = self._decide(state.shape.table, None, self._catalogue.current(table))
        if decision.verdict is Verdict.REFUSE and self._policy.changes is not SchemaChanges.PAUSE:
            raise TableError(decision.reason, decision.remedy, str(table))
        ways = (self._way(state, number, state.shape) for number in state.shapes if number > state.shape.number)
        return decision.verdict is Verdict.FOLLOW and not decision.operations and all(way is not None for way in ways)

    def resume(self, table: TableId, lsn: int) -> None:
        """Resume a paused table."""
        self._log.resume(table, lsn)
        state = self._tables[table]
        state.paused, state.reread, state.owed = None, state.reread or state.owed, None

    def want_reread(self, table: TableId, reason: str, *, is_first: bool = False) -> None:
        """Record that the table must be re-read, or pause it if the policy requires it (not for its first snapshot)."""
        state = self._tables[table]
        if self._policy.changes is SchemaChanges.PAUSE and not is_first:
            remedy = f"Run wal2lake replay with {table}, or set wal2lake.lake.schema.changes=reread."
            self.pause(table, PauseCause.SCHEMA_CHANGE, f"{table} must be re-read: {reason}", remedy, 0)
        elif state.reread is None and state.paused is None:
            _log.warning("%s is re-read: %s", table, reason)
            self._log.want_reread(table, reason, state.newest, 0)
            state.reread = reason

    def holders(self, oids: set[int]) -> dict[int, list[TableId]]:
        """Return, by oid, the lake tables that were read from these tables; also names that are not opened."""
        found: dict[int, list[TableId]] = {}
        for table in self._tables.keys() | self._histories.keys():
            state = self._tables.get(table)
            shapes = self._histories[table].shapes.values() if state is None else [state.shape] if state.shape else []
            for oid in {shape.table.oid for shape in shapes} & oids:
                found.setdefault(oid, []).append(table)
        return found

    def owe_reread(self, table: TableId, reason: str) -> None:
        """Record that the table must be re-read, at the latest when its name exists again or it is resumed."""
        state = self._tables.get(table)
        if state is None:
            history = self._histories[table]
            newest = max(history.shapes)
            if history.reread is None or history.reread[0] < newest:
                history.reread = (newest, reason)
                self._log.want_reread(table, reason, newest, 0)
        elif state.reread is None and state.owed is None:
            if state.paused is None and self._catalogue.current(table) is not None:
                self.want_reread(table, reason)
            else:
                self._log.want_reread(table, reason, state.newest, 0)
                state.owed = reason

    def can_be_read(self, table: TableId) -> bool:
        """Whether the table exists, so that a re-read can begin; if not, it is made once the table exists again."""
        state = self._tables[table]
        if not state.absent and self._catalogue.current(table) is None:
            _log.warning("%s does not exist now; it is re-read when it exists again.", table)
            state.absent = True
        return not state.absent

    def find_returned(self) -> None:
        """Find tables that exist again and are to be re-read."""
        for table, state in self._tables.items():
            if not (state.absent or state.owed is not None) or self._catalogue.current(table) is None:
                continue
            state.absent = False
            if state.owed is not None and state.paused is None:
                reason, state.owed = state.owed, None
                self.want_reread(table, reason)

    def require_reread(self, table: TableId, reason: str) -> None:
        """Store that a table must be re-read before it is merged again, also if it is paused."""
        state = self._tables[table]
        if state.reread is None:
            self._log.want_reread(table, reason, state.newest, 0)
            state.reread = reason

    def reserve(self, table: TableId) -> int:
        """Reserve the number of the shape that a re-read of the table creates; later rows get greater numbers."""
        state = self._tables[table]
        state.reserved = state.newest + 1
        return state.reserved

    def pause(self, table: TableId, cause: PauseCause, reason: str, remedy: str, lsn: int) -> None:
        """Stop merging the table and log the reason; its changes are still appended to its changelog."""
        state = self._tables[table]
        if state.paused is None:
            _log.warning("%s is paused: %s %s", table, reason, remedy)
            state.paused = self._log.pause(table, cause, reason, remedy, lsn)

    def _refuse(self, table: TableId, decision: Decision, lsn: int) -> None:
        assert decision.cause is not None
        self.pause(table, decision.cause, decision.reason, decision.remedy, lsn)

    def _number(
        self, state: TableShape, version: TableSchema, current: TableSchema | None, lsn: int, read_at: int | None
    ) -> int:
        base = state.shape
        if base is None:
            streamed = version if current is None else with_marks(version, current)
            return self._add(state, version.id, streamed, None, lsn).number
        if same_shape(base.table, version) and same_columns(base.table, version):
            return base.number
        # From before the snapshot, which already shows what these rows changed, so no decision is needed.
        is_late = read_at is not None and lsn <= read_at
        if state.holds_back or is_late:
            return self._add(state, version.id, version, None, lsn, decided=False).number
        # The stream decides, at its position; a change found by a poll may be later than that.
        self._is_poll_due |= state.waiting is not None
        state.waiting = None
        decision = self._decide(base.table, version, current)
        if decision.verdict is Verdict.FOLLOW:
            return self._follow(version.id, state, decision, lsn)
        if decision.verdict is Verdict.REREAD:
            self.want_reread(version.id, decision.reason)
        else:
            self._refuse(version.id, decision, lsn)
        return self._add(state, version.id, version, None, lsn, decided=False).number

    def _decide(self, base: TableSchema, version: TableSchema | None, current: TableSchema | None) -> Decision:
        captured = set(self._captured(base)) | set(self._captured(version) if version is not None else ())
        captured |= set(self._captured(current) if current is not None else ())
        return decide(
            base,
            version,
            current,
            lake_type=self._lake_type,
            policy=self._policy,
            captures=captured.__contains__,
            lake_columns=self._lake_columns(base.id),
        )

    def _follow(self, table: TableId, state: TableShape, decision: Decision, lsn: int) -> int:
        """Add the plan's step; returns the number of the resulting shape."""
        assert decision.table is not None and state.shape is not None
        state.seen = decision.table.fingerprint
        has_key = row_key(decision.table) == row_key(state.shape.table)
        if has_key and not any(operation.changes_lake for operation in decision.operations):
            state.shape = dataclasses.replace(state.shape, table=decision.table)
            state.shapes[state.shape.number] = state.shape
            return state.shape.number
        columns = self._masked(project(self._lake_columns(table), decision.operations), decision.table)
        for change in decision.changes:
            _log.warning("%s: %s %s", table, change.kind.value, change.column)
        return self._add(state, table, decision.table, columns, lsn).number

    def _add(
        self,
        state: TableShape,
        name: TableId,
        table: TableSchema,
        columns: tuple[Projected, ...] | None,
        lsn: int,
        *,
        decided: bool = True,
    ) -> Shape:
        """Store the next shape. ``decided``: the lake table is to get this shape."""
        number = state.newest + 1
        parent = None if columns is None or state.shape is None else state.shape.number
        shape = Shape(number, table, columns, parent)
        # A shape that a killed run decided in the same way keeps its number: changes in the changelog may refer to it.
        known = (each for each in state.shapes.values() if columns is not None and each.parent == parent is not None)
        same = next((e for e in known if e.projection == columns and same_shape(e.table, table)), None)
        if same is not None:
            shape = dataclasses.replace(same, table=table)
            number = shape.number
        if columns is not None:
            state.steps[number] = self._step(name, shape)
        if same is None:
            self._log.add_shapes([(name, shape)], lsn)
        state.shapes[number] = shape
        if decided:
            state.shape = shape
            state.seen = table.fingerprint
            state.in_force = state.in_force or number
        return shape

    def _step(self, name: TableId, shape: Shape) -> Step:
        assert shape.projection is not None
        types = {each.name: each.type for each in self._lake_fields(name, shape.parent or 0)}
        state = self._tables[name]
        before = state.shapes.get(shape.parent or 0)
        if shape.number <= state.in_force and before is not None:
            # A step of an earlier run: the lake table has changed since, and its names may now be those of other
            # columns.
            types |= {column.name: self._lake_type(column) for column in before.table.columns}
        columns = []
        for each in shape.projection:
            if each.column is None:
                kind = types.get(each.source or "", pa.string())
                columns.append(StepColumn(each.name, each.source, kind))
                continue
            natural = resolve(each.column, self._plan.types).natural
            value = text = None
            if each.source is None and each.fill is not None:
                converted = natural.convert(pa.array([each.fill], pa.string()))
                value = converted.values[0]
                text = each.fill if not value.is_valid else None
            columns.append(StepColumn(each.name, each.source, natural.arrow_type, value, text))
        return Step(shape.number, tuple(columns))

    def _lake_fields(self, table: TableId, before: int) -> list[pa.Field]:
        """Return the lake table's data columns after the step ``before``; without such a step, its current ones."""
        state = self._tables[table]
        step = state.steps.get(before)
        if step is not None and before > state.in_force:
            return [pa.field(each.name, each.type) for each in step.columns]
        schema = self._lake_schema(table)
        if schema is None:
            assert state.shape is not None
            return [pa.field(c.name, self._lake_type(c)) for c in state.shape.table.columns]
        own = own_columns(schema)
        return [each for each in schema if each not in own]

    def _lake_columns(self, table: TableId) -> list[str]:
        state = self._tables[table]
        number = 0 if state.shape is None else state.shape.number
        return [each.name for each in self._lake_fields(table, number)]

    def _look(self, table: TableId, state: TableShape, found: Fingerprint | None, wal_lsn: Callable[[], int]) -> None:
        """Handle a table whose fingerprint changed, or that no longer exists."""
        assert state.shape is not None
        current = self._catalogue.current(table)
        # Queried after the catalogue: every change visible there was committed before this LSN.
        lsn = wal_lsn()
        decision = self._decide(state.shape.table, None, current)
        state.seen = found if current is None else current.fingerprint
        if decision.verdict is Verdict.FOLLOW:
            if decision.operations:
                state.waiting = (lsn, decision)
            elif decision.table is not None and current is not None:
                self._follow(table, state, decision, lsn)
        elif decision.verdict is Verdict.REREAD:
            self.want_reread(table, decision.reason)
        else:
            self._refuse(table, decision, lsn)

    def _look_at_paused(self, table: TableId, state: TableShape, paused: Pause) -> None:
        """Resume a paused table by a re-read if the user has removed the cause of the pause."""
        if not paused.ends_by_reread or self._policy.changes is SchemaChanges.PAUSE:
            return
        current = self._catalogue.current(table)
        if current is None or name_clash(table, self._captured(streamed(current))) is not None:
            return
        if state.shape is not None and self._decide(state.shape.table, None, current).verdict is Verdict.REFUSE:
            return
        self.resume(table, paused.lsn)
        self.want_reread(table, "the cause of the pause no longer exists")

    def _way(self, state: TableShape, number: int, target: Shape) -> tuple[Step, ...] | None:
        if number == target.number:
            return ()
        shape, found, at = state.shapes[number].table, list[Step](), target
        # From parent to parent: a shape that was decided but never applied is not an ancestor of the target.
        while at.parent is not None and at.number != number:
            step = state.steps.get(at.number) or self._known_step(state, at.number)
            if step is None:
                break
            found.append(step)
            at = state.shapes[at.parent]
        if at.number == number:
            return tuple(reversed(found))
        return () if same_shape(shape, target.table) and same_columns(shape, target.table) else None

    def _known_step(self, state: TableShape, number: int) -> Step | None:
        """Return the step of a shape that an earlier run stored."""
        shape = state.shapes.get(number)
        if shape is None or shape.projection is None:
            return None
        return self._step(shape.table.id, shape)

    def _masked(self, columns: Sequence[Projected], table: TableSchema) -> tuple[Projected, ...]:
        """Return the projection with the constants of masked columns masked: it is stored, as the lake's rows are."""
        mappers = {plan.name: plan.mapper for plan in plan_columns(table, self._plan.selection)}
        out = []
        for each in columns:
            mapper, fill = mappers.get(each.name), each.fill
            if mapper is not None and fill is not None and each.source is None:
                fill = mapper(pa.array([fill], pa.string()))[0].as_py()
            # The value for older rows is only in ``fill``.
            bare = None if each.column is None else dataclasses.replace(each.column, missing=None)
            out.append(dataclasses.replace(each, fill=fill, column=bare))
        return tuple(out)

    def _captured(self, table: TableSchema) -> tuple[str, ...]:
        return tuple(plan.name for plan in plan_columns(table, self._plan.selection) if plan.included)

    def _lake_type(self, column: Column) -> pa.DataType:
        return resolve(column, self._plan.types).natural.arrow_type


def with_marks(version: TableSchema, current: TableSchema) -> TableSchema:
    """Return a version as announced, with the fingerprint of the catalogue's description."""
    return dataclasses.replace(version, fingerprint=current.fingerprint)


def same_shape(one: TableSchema, other: TableSchema) -> bool:
    """Whether rows of both are read in the same way: same columns, types, key and replica identity."""
    return (
        [(c.name, c.type.oid, c.modifier) for c in one.columns]
        == [(c.name, c.type.oid, c.modifier) for c in other.columns]
        and row_key(one) == row_key(other)
        and one.identity is other.identity
        and one.oid == other.oid
    )


def same_columns(one: TableSchema, other: TableSchema) -> bool:
    """Whether columns of one name are the same column: one that was dropped and added again is a different column."""
    known = {column.name: column.attnum for column in one.columns if column.attnum}
    return all(known.get(each.name, each.attnum) == each.attnum for each in other.columns if each.attnum)
