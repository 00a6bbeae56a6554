"""The schema versions of the source that each lake table has had: numbers them, and stores the decision on each.

Events are appended to the changelog in all cases, each with the number of the schema version under which it was
decoded: no table delays the others, and the changes to a table while it was paused or re-read are in its changelog, in
order.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping

from cdc_core.engine.schema.decisions import SchemaDecisions
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.lake import SchemaLog, SchemaSteps, SchemaVersion, TableVersions, TargetSchema
from cdc_core.schema import (
    Decision,
    Fingerprint,
    PauseCause,
    Projected,
    ReplicaIdentity,
    TableId,
    TableSchema,
    keeps_key,
    project,
    same_columns,
    same_layout,
)

_log = logging.getLogger(__name__)


class SchemaVersions:
    """The schema versions of every table. For one thread.

    ``dropped_plans`` counts the changes found in the catalogue that were not applied, because the stream announced an
    earlier one: the catalogue is to be compared again.
    """

    def __init__(
        self,
        log: SchemaLog,
        tables: KnownTables,
        pauses: Pauses,
        steps: SchemaSteps,
        decisions: SchemaDecisions,
        *,
        reads_new_tables: bool = True,
    ) -> None:
        self._log = log
        self._tables = tables
        self._pauses = pauses
        self._steps = steps
        self._decisions = decisions
        self._reads_new_tables = reads_new_tables
        self.dropped_plans = 0

    def open(self, table: TableId, in_force: int | None) -> TableVersions:
        """Load the table's state; ``in_force`` is the number in its lake table's commits, None if there is none.

        A table whose columns the options now treat otherwise than its rows in the lake is to be re-read; so is one of
        which the log does not have the schema version in force, so that no change of the source would be found.
        """
        state = self._tables.open(table, in_force)
        if in_force and state.schema_version is None:
            reason = "the record of its columns, __schema_versions, was removed or replaced by an older copy"
            self._pauses.want_reread(table, reason)
        if state.schema_version is not None:
            reason = self._decisions.reread_by_options(state.schema_version)
            if reason:
                self._pauses.want_reread(table, reason)
            else:
                self._record_treatments(table, state, state.schema_version)
            self.require_carried(table)
        return state

    def require_carried(self, table: TableId) -> None:
        """Pause the table if its changes would not find their rows."""
        state = self._tables.of(table)
        refused = None if state.schema_version is None else self._decisions.uncarried(state.schema_version.table)
        if refused is not None:
            self._pauses.hold_back(table, refused, 0)

    def take_up(self, table: TableId, last: Callable[[], int]) -> None:
        """Continue at the version of the last change in the table's changelog, if its steps lead there from the lake's.

        An earlier run decided it and ended before its lake table had it. Nothing announces it again, because the
        changes before the changelog's end are dropped when they are sent again; what is announced next follows it.
        ``last`` returns its number, and is called only if the log has a step from the version in force.
        """
        state = self._tables.of(table)
        if state.schema_version is None or all(v.parent != state.in_force for v in state.schema_versions.values()):
            return
        chain, at = [], state.schema_versions.get(last())
        while at is not None and at.number > state.in_force and at.projection is not None:
            chain.append((at, at.projection))
            at = state.schema_versions.get(at.parent or 0)
        if at is None or at.number != state.in_force:
            return
        for version, projection in reversed(chain):
            state.steps[version.number] = self._steps.step(state, table, version, projection)
            state.schema_version, state.seen = version, version.table.fingerprint
            reason = self._decisions.reread_by_options(version)
            if reason:
                self._pauses.want_reread(table, reason)

    def target(
        self, state: TableVersions, known: TableSchema, since: Mapping[str, int], *, is_mixed: bool
    ) -> TargetSchema:
        """Return the schema version that the lake table is to have (``SchemaSteps.target``)."""
        return self._steps.target(state, known, since, is_mixed=is_mixed)

    def number(self, version: TableSchema, current: TableSchema | None, lsn: int, read_at: int | None) -> int:
        """Return the number of a version of the table in the stream. Decides about a new one, and stores the decision.

        ``current`` is the catalogue's description at the time of the Relation message, None if the table no longer
        existed. ``lsn`` is that of the version's first rows, ``read_at`` that of the snapshot in force: a table that is
        not in the lake and was never read is read.
        """
        state = self._tables.of(version.id)
        if version.version not in state.by_version:
            is_unknown = state.schema_version is None and not state.schema_versions
            state.by_version[version.version] = self._number(state, version, current, lsn, read_at)
            if is_unknown and read_at is None and self._reads_new_tables:
                self._read_new(state, version.id, current, lsn)
        elif self._is_full_again(state, version) and not is_shown(lsn, read_at):
            reason = "its replica identity is FULL again, and rows may have had equal keys meanwhile"
            self._pauses.want_reread(version.id, reason)
        return state.by_version[version.version]

    @staticmethod
    def _is_full_again(state: TableVersions, version: TableSchema) -> bool:
        """Whether an announced version is not decided on again, since the catalogue showed another identity."""
        base = None if state.schema_version is None else state.schema_version.table
        is_full = version.identity is ReplicaIdentity.FULL
        return base is not None and is_full and base.identity is not version.identity and bool(base.row_key)

    def adopt(self, table: TableSchema, lsn: int) -> SchemaVersion:
        """Store a description, read at ``lsn``, as the first schema version of a table that is not in the lake yet."""
        return self._add(self._tables.of(table.id), table.id, table, None, lsn)

    def reserve(self, table: TableId) -> int:
        """Reserve the number of the schema version that a re-read creates; later rows get greater numbers."""
        state = self._tables.of(table)
        state.reserved = state.newest + 1
        return state.reserved

    def note_seen(self, table: TableId, seen: Fingerprint | None) -> None:
        """Note the fingerprint up to which the catalogue's changes of the table were decided on; None if dropped."""
        self._tables.of(table).seen = seen

    def follow_after(
        self, table: TableId, base: SchemaVersion, decision: Decision, after: TableSchema, lsn: int
    ) -> None:
        """Follow a change from ``base``, the version decided last, that no message has announced.

        At once if only the description changed, else once the stream has passed ``lsn``, before which the source
        changed. Until then the stream may announce changes under another replica identity or from before the present
        key.
        """
        state = self._tables.of(table)
        is_identified = base.table.identity is after.identity and keeps_key(base.table, decision.marks)
        if decision.operations or not is_identified:
            state.waiting = (lsn, decision, after)
        else:
            self._follow(table, state, base, decision, after, lsn)

    def follow_passed(self, passed: int) -> list[TableId]:
        """Apply the plans whose LSN the stream has passed without a change of a row; returns their tables."""
        done = []
        for table in list(self._tables.unsettled):
            state = self._tables.of(table)
            base, plan = state.schema_version, state.waiting
            if base is None or plan is None or plan[0] > passed or state.holds_back:
                continue
            lsn, decision, after = plan
            state.waiting = None
            self._follow(table, state, base, decision, after, lsn)
            done.append(table)
        return done

    def _record_treatments(self, table: TableId, state: TableVersions, version: SchemaVersion) -> None:
        now = self._steps.treatments(version.table)
        if version.treatments != now:
            state.schema_version = state.schema_versions[version.number] = dataclasses.replace(version, treatments=now)
            self._record_again(table, state.schema_version)

    def _record_again(self, table: TableId, version: SchemaVersion) -> None:
        recorded_at = self._tables.history(table).lsns.get(version.number, 0)
        self._log.add_versions([(table, version)], recorded_at)

    def _read_new(self, state: TableVersions, table: TableId, current: TableSchema | None, lsn: int) -> None:
        # A partition that was detached and attached again has changes under its own name, and gets no others. A root
        # whose partitions are sent under their own names is truncated under its name.
        if current is not None and state.schema_version is not None:
            is_root = current.is_partitioned
            decision = self._decisions.decide(state, state.schema_version.table, None, current)
            if not is_root and decision.cause is PauseCause.PUBLISHED_OTHERWISE:
                self._pauses.hold_back(table, decision, lsn)
                return
        reason = "it was added to the captured tables, and its existing rows are not in the lake"
        self._pauses.want_reread(table, reason, is_first=True)

    def _number(
        self, state: TableVersions, version: TableSchema, current: TableSchema | None, lsn: int, read_at: int | None
    ) -> int:
        base = state.schema_version
        if base is None:
            first = version if current is None else dataclasses.replace(version, fingerprint=current.fingerprint)
            return self._add(state, version.id, first, None, lsn).number
        if same_layout(base.table, version) and same_columns(base.table, version):
            return base.number
        if state.holds_back or is_shown(lsn, read_at):
            return self._add(state, version.id, version, None, lsn, decided=False).number
        # The stream decides, at its position; a change found by a poll may be later than that.
        self.dropped_plans += state.waiting is not None
        state.waiting = None
        decision = self._decisions.decide(state, base.table, version, current)
        if decision.table is not None:
            return self._follow(version.id, state, base, decision, decision.table, lsn)
        self._pauses.hold_back(version.id, decision, lsn)
        return self._add(state, version.id, version, None, lsn, decided=False).number

    def _follow(
        self,
        table: TableId,
        state: TableVersions,
        base: SchemaVersion,
        decision: Decision,
        after: TableSchema,
        lsn: int,
    ) -> int:
        """Add the step of a plan from ``base`` to ``after``; returns the number of the resulting schema version."""
        state.seen = after.fingerprint
        has_key = after.row_key == base.table.row_key
        if has_key and not any(operation.changes_lake for operation in decision.operations):
            known = base.table.fingerprint
            described = dataclasses.replace(base, table=after)
            state.schema_version = state.schema_versions[described.number] = described
            if known is None or state.seen is None or known.keys != state.seen.keys:
                # The next run may find another index in place of one of these.
                self._record_again(table, described)
            return described.number
        projected = project(self._steps.lake_columns(state, table), decision.operations)
        columns = self._steps.masked(projected, after)
        for change in decision.changes:
            _log.warning("%s: %s", table, change.text)
        return self._add(state, table, after, columns, lsn).number

    def _add(
        self,
        state: TableVersions,
        name: TableId,
        table: TableSchema,
        columns: tuple[Projected, ...] | None,
        lsn: int,
        *,
        decided: bool = True,
    ) -> SchemaVersion:
        """Store the next schema version. ``decided``: the lake table is to get this schema version."""
        number = state.newest + 1
        parent = None if columns is None or state.schema_version is None else state.schema_version.number
        schema_version = SchemaVersion(number, table, columns, parent, self._steps.treatments(table))
        # A schema version that a killed run decided in the same way keeps its number: changes in the changelog may
        # refer to it.
        known = (
            version
            for version in state.schema_versions.values()
            if columns is not None and version.parent == parent is not None
        )
        same = next((e for e in known if e.projection == columns and same_layout(e.table, table)), None)
        if same is not None:
            schema_version = dataclasses.replace(same, table=table)
            number = schema_version.number
        if columns is not None:
            state.steps[number] = self._steps.step(state, name, schema_version, columns)
        if same is None:
            self._log.add_versions([(name, schema_version)], lsn)
        state.schema_versions[number] = schema_version
        if decided:
            state.schema_version = schema_version
            state.seen = table.fingerprint
            state.in_force = state.in_force or number
        return schema_version


def is_shown(lsn: int, read_at: int | None) -> bool:
    """Whether rows are from before the snapshot in force, which already shows what they changed."""
    return read_at is not None and lsn <= read_at
