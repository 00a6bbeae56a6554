"""The schema version of the source that each lake table has, and what is done when the source changes.

    Relation message of another version  ─▶ decide (schema/evolution) ─▶ FOLLOW   a step for the lake, at this position
    fingerprint in the catalogue changed ─▶                          ─▶ REREAD   only this table is re-read
                                                                     ─▶ REFUSE   only this table is paused

Events are appended to the changelog in all cases, each with the number of the schema version under which it was
decoded: no table delays the others, and the changes to a table while it was paused or re-read are in its changelog, in
order.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pyarrow as pa

from cdc_core.engine.schema.pauses import Catalogue, Pauses
from cdc_core.engine.schema.state import TableVersions
from cdc_core.engine.schema.steps import SchemaSteps, same_columns, same_layout
from cdc_core.errors import TableError
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.view import View
from cdc_core.lake.stores.schema_log import Pause, SchemaLog, SchemaVersion
from cdc_core.schema.changes import Decision, PauseCause, Policy, Projected, SchemaChanges, Verdict, project
from cdc_core.schema.evolution import decide
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.plan import name_clash, row_key
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.schema.unseen import streamed
from cdc_core.selection.columns import EXCLUDED, SKIPPED

_log = logging.getLogger(__name__)


class SchemaVersions:
    """The schema versions of every table. For one thread. ``pauses``: which tables are paused or to be re-read."""

    def __init__(
        self,
        log: SchemaLog,
        catalogue: Catalogue,
        plan: TypingPlan,
        policy: Policy,
        lake_schema: Callable[[TableId], pa.Schema | None],
        *,
        reads_new_tables: bool = True,
    ) -> None:
        self._log = log
        self._catalogue = catalogue
        self._policy = policy
        self._steps = SchemaSteps(plan, lake_schema)
        self._reads_new_tables = reads_new_tables
        self.pauses = Pauses(log, catalogue, policy)
        self._is_poll_due = False
        self._stamp: str | None = None

    @property
    def is_poll_due(self) -> bool:
        """Whether ``poll`` must run again because an earlier change of the stream replaced one that it had found."""
        return self._is_poll_due

    def open(self, table: TableId, in_force: int | None) -> TableVersions:
        """Load the table's state; ``in_force`` is the number in its lake table's commits, None if there is none.

        A table whose columns the options now treat otherwise than its rows in the lake is to be re-read; so is one of
        which the log does not have the schema version in force, so that no change of the source would be found.
        """
        state = self.pauses.open(table, in_force)
        if in_force and state.schema_version is None:
            reason = "the record of its columns, __shapes, was removed or replaced by an older copy"
            self.pauses.want_reread(table, reason)
        self._compare_treatments(table, state)
        return state

    def reopen(self, table: TableId, in_force: int | None) -> TableVersions:
        """Reload the state after the table was re-read."""
        return self.pauses.reopen(table, in_force)

    def of(self, table: TableId) -> TableVersions:
        """Return the table's state; raises KeyError if it was never opened."""
        return self.pauses.tables[table]

    def views(self, table: TableId) -> dict[int, View]:
        """Return how to read change rows of each schema version that the table has had."""
        return self._steps.views(self.of(table))

    def number(self, version: TableSchema, current: TableSchema | None, lsn: int, read_at: int | None) -> int:
        """Return the number of a version of the table in the stream. Decides about a new one, and stores the decision.

        ``current`` is the catalogue's description at the time of the Relation message, None if the table no longer
        existed. ``lsn`` is that of the version's first rows, ``read_at`` that of the snapshot in force: a table that is
        not in the lake and was never read is read.
        """
        state = self.of(version.id)
        if version.version not in state.by_version:
            is_unknown = state.schema_version is None and not state.schema_versions
            state.by_version[version.version] = self._number(state, version, current, lsn, read_at)
            if is_unknown and read_at is None and self._reads_new_tables:
                self._read_new(state, version.id, current, lsn)
        return state.by_version[version.version]

    def adopt(self, table: TableSchema, wal_lsn: Callable[[], int]) -> SchemaVersion:
        """Store a description as the first schema version of a table that is not in the lake yet."""
        return self._add(self.of(table.id), table.id, table, None, wal_lsn())

    def poll(self, wal_lsn: Callable[[], int]) -> None:
        """Check if fingerprints in the catalogue changed without a Relation message. Two queries for all tables."""
        self.pauses.find_returned()
        # A table that was renamed to another captured name is known by both names.
        known = [
            (state.schema_version.table.oid, table, state)
            for table, state in self.pauses.tables.items()
            if state.schema_version is not None and state.reread is None
        ]
        for table, state in self.pauses.tables.items():
            if state.schema_version is None and state.paused is not None:
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

    def poll_if_altered(self, wal_lsn: Callable[[], int]) -> None:
        """As ``poll``, but only if values may have changed without an event since the last call. One small query.

        Everything that was committed before the call is seen, so what is recorded after it as current is.
        """
        oids = {
            state.schema_version.table.oid for state in self.pauses.tables.values() if state.schema_version is not None
        }
        stamp = self._catalogue.storage_stamp(oids)
        if stamp != self._stamp:
            self._stamp = stamp
            self.poll(wal_lsn)

    def follow_passed(self, passed: int) -> list[TableId]:
        """Apply the plans whose LSN the stream has passed without a change of a row; returns their tables."""
        done = []
        for table, state in self.pauses.tables.items():
            if state.waiting is None or state.waiting[0] > passed or state.holds_back:
                continue
            lsn, decision = state.waiting
            state.waiting = None
            self._follow(table, state, decision, lsn)
            done.append(table)
        return done

    def can_go_on(self, table: TableId) -> bool:
        """Whether a paused table's changes can be merged with its source's current schema version, without a re-read.

        Raises TableError if the cause of the pause still exists.
        """
        state = self.of(table)
        if state.schema_version is None or state.reread is not None or state.owed is not None:
            return False
        decision = self._decide(state.schema_version.table, None, self._catalogue.current(table))
        if decision.verdict is Verdict.REFUSE and self._policy.changes is not SchemaChanges.PAUSE:
            raise TableError(decision.reason, decision.remedy, str(table))
        ways = (
            self._steps.way(state, number, state.schema_version)
            for number in state.schema_versions
            if number > state.schema_version.number
        )
        return decision.verdict is Verdict.FOLLOW and not decision.operations and all(way is not None for way in ways)

    def reserve(self, table: TableId) -> int:
        """Reserve the number of the schema version that a re-read creates; later rows get greater numbers."""
        state = self.of(table)
        state.reserved = state.newest + 1
        return state.reserved

    def _compare_treatments(self, table: TableId, state: TableVersions) -> None:
        schema_version = state.schema_version
        if schema_version is None:
            return
        now = self._steps.treatments(schema_version.table)
        before = now if schema_version.treatments is None else schema_version.treatments
        altered = {name for name, known in before.items() if now.get(name, known) != known} - {SKIPPED}
        # A release that did not record them may have skipped operations; it warned at each start.
        missed = set(before.get(SKIPPED, "")) - set(now[SKIPPED])
        if missed:
            self.pauses.want_reread(
                table, f"skipped.operations has left out changes until now: {', '.join(sorted(missed))}"
            )
        elif any(now[name] != EXCLUDED for name in altered):
            names = ", ".join(sorted(altered))
            self.pauses.want_reread(table, f"the connector file now treats columns otherwise than before: {names}")
        elif schema_version.treatments != now:
            # An excluded column is not read again: it gets no values from now on, until it is captured again.
            state.schema_version = state.schema_versions[schema_version.number] = dataclasses.replace(
                schema_version, treatments=now
            )
            self._log.add_versions(
                [(table, state.schema_version)], self.pauses.recorded_at(table, schema_version.number)
            )

    def _read_new(self, state: TableVersions, table: TableId, current: TableSchema | None, lsn: int) -> None:
        # A partition that was detached and attached again has changes under its own name, and gets no others. A root
        # whose partitions are sent under their own names is truncated under its name.
        if current is not None and state.schema_version is not None:
            is_root = current.fingerprint is not None and current.fingerprint.is_partitioned
            decision = self._decide(state.schema_version.table, None, current)
            if not is_root and decision.cause is PauseCause.PUBLISHED_OTHERWISE:
                self._refuse(table, decision, lsn)
                return
        reason = "it was added to the captured tables, and its existing rows are not in the lake"
        self.pauses.want_reread(table, reason, is_first=True)

    def _refuse(self, table: TableId, decision: Decision, lsn: int) -> None:
        assert decision.cause is not None
        self.pauses.pause(table, decision.cause, decision.reason, decision.remedy, lsn)

    def _number(
        self, state: TableVersions, version: TableSchema, current: TableSchema | None, lsn: int, read_at: int | None
    ) -> int:
        base = state.schema_version
        if base is None:
            first = version if current is None else with_marks(version, current)
            return self._add(state, version.id, first, None, lsn).number
        if same_layout(base.table, version) and same_columns(base.table, version):
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
            self.pauses.want_reread(version.id, decision.reason)
        else:
            self._refuse(version.id, decision, lsn)
        return self._add(state, version.id, version, None, lsn, decided=False).number

    def _decide(self, base: TableSchema, version: TableSchema | None, current: TableSchema | None) -> Decision:
        captured = set(self._steps.captured(base)) | set(self._steps.captured(version) if version is not None else ())
        captured |= set(self._steps.captured(current) if current is not None else ())
        decision = decide(
            base,
            version,
            current,
            lake_type=self._steps.lake_type,
            policy=self._policy,
            captures=captured.__contains__,
            lake_columns=self._steps.lake_columns(self.of(base.id), base.id),
        )
        if decision.verdict is Verdict.FOLLOW and decision.table is not None:
            altered = self._steps.treated_otherwise(base, decision.table)
            if altered:
                reason = f"Masks or truncation of {base.id} are others for the changed columns: {', '.join(altered)}."
                return Decision(Verdict.REREAD, decision.changes, reason=reason)
        return decision

    def _follow(self, table: TableId, state: TableVersions, decision: Decision, lsn: int) -> int:
        """Add the plan's step; returns the number of the resulting schema version."""
        assert decision.table is not None and state.schema_version is not None
        state.seen = decision.table.fingerprint
        has_key = row_key(decision.table) == row_key(state.schema_version.table)
        if has_key and not any(operation.changes_lake for operation in decision.operations):
            state.schema_version = dataclasses.replace(state.schema_version, table=decision.table)
            state.schema_versions[state.schema_version.number] = state.schema_version
            return state.schema_version.number
        projected = project(self._steps.lake_columns(state, table), decision.operations)
        columns = self._steps.masked(projected, decision.table)
        for change in decision.changes:
            _log.warning("%s: %s %s", table, change.kind.value, change.column)
        return self._add(state, table, decision.table, columns, lsn).number

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
            each for each in state.schema_versions.values() if columns is not None and each.parent == parent is not None
        )
        same = next((e for e in known if e.projection == columns and same_layout(e.table, table)), None)
        if same is not None:
            schema_version = dataclasses.replace(same, table=table)
            number = schema_version.number
        if columns is not None:
            state.steps[number] = self._steps.step(state, name, schema_version)
        if same is None:
            self._log.add_versions([(name, schema_version)], lsn)
        state.schema_versions[number] = schema_version
        if decided:
            state.schema_version = schema_version
            state.seen = table.fingerprint
            state.in_force = state.in_force or number
        return schema_version

    def _look(
        self, table: TableId, state: TableVersions, found: Fingerprint | None, wal_lsn: Callable[[], int]
    ) -> None:
        """Handle a table whose fingerprint changed, or that no longer exists."""
        assert state.schema_version is not None
        current = self._catalogue.current(table)
        # Queried after the catalogue: every change visible there was committed before this LSN.
        lsn = wal_lsn()
        decision = self._decide(state.schema_version.table, None, current)
        state.seen = found if current is None else current.fingerprint
        if decision.verdict is Verdict.FOLLOW:
            if decision.operations:
                state.waiting = (lsn, decision)
            elif decision.table is not None and current is not None:
                self._follow(table, state, decision, lsn)
        elif decision.verdict is Verdict.REREAD:
            self.pauses.want_reread(table, decision.reason)
        else:
            self._refuse(table, decision, lsn)

    def _look_at_paused(self, table: TableId, state: TableVersions, paused: Pause) -> None:
        """Resume a paused table by a re-read if the user has removed the cause of the pause."""
        if not paused.ends_by_reread or self._policy.changes is SchemaChanges.PAUSE:
            return
        current = self._catalogue.current(table)
        if current is None or name_clash(table, self._steps.captured(streamed(current))) is not None:
            return
        if (
            state.schema_version is not None
            and self._decide(state.schema_version.table, None, current).verdict is Verdict.REFUSE
        ):
            return
        self.pauses.resume(table, paused.lsn)
        self.pauses.want_reread(table, "the cause of the pause no longer exists")


def with_marks(version: TableSchema, current: TableSchema) -> TableSchema:
    """Return a version as announced, with the fingerprint of the catalogue's description."""
    return dataclasses.replace(version, fingerprint=current.fingerprint)
