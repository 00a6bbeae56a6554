"""Decides what follows for a lake table when its source, or the connector file, is another than before.

    Relation message of another version  ─▶ decide (schema/evolution) ─▶ FOLLOW   a step for the lake, at this position
    fingerprint in the catalogue changed ─▶                          ─▶ REREAD   only this table is re-read
                                                                     ─▶ REFUSE   only this table is paused

Nothing is changed here: ``versions`` does what follows from a message, ``catalogue_watch`` from the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cdc_core.errors import TableError
from cdc_core.lake import Pause, SchemaSteps, SchemaVersion, TableVersions
from cdc_core.schema import Decision, Policy, SchemaChanges, TableId, TableSchema, Verdict, decide, name_clash, streamed
from cdc_core.selection import EXCLUDED, SKIPPED

Uncarried = Callable[[TableSchema], Decision | None]
"""Returns REFUSE for a table with columns that identify rows, and that the stream does not carry exactly."""


class SchemaDecisions:
    """The decisions under one ``policy``, about columns as ``steps`` has them in the lake.

    ``uncarried`` refuses a table whose changes would not find their rows, for whatever reason.
    """

    def __init__(self, steps: SchemaSteps, policy: Policy, uncarried: Uncarried = lambda table: None) -> None:
        self._steps = steps
        self._policy = policy
        self.uncarried = uncarried

    def decide(
        self, state: TableVersions, base: TableSchema, announced: TableSchema | None, current: TableSchema | None
    ) -> Decision:
        """Decide how the table gets from ``base``, the version decided last, to the next.

        ``announced`` is the version of a Relation message, None if there was none; ``current`` is the catalogue's
        description, None if the table does not exist.
        """
        captured = {name for version in (base, announced, current) if version for name in self._steps.captured(version)}
        decision = decide(
            base,
            announced,
            current,
            lake_type=self._steps.lake_type,
            policy=self._policy,
            captures=captured.__contains__,
            lake_columns=self._steps.lake_columns(state, base.id),
        )
        refused = None if current is None else self.uncarried(streamed(current))
        if refused is not None and decision.verdict is not Verdict.REFUSE:
            return replace(refused, changes=decision.changes)
        if decision.verdict is Verdict.FOLLOW and decision.table is not None:
            altered = self._steps.treated_otherwise(base, decision.table)
            if altered:
                reason = f"Masks or truncation of {base.id} are others for the changed columns: {', '.join(altered)}."
                return Decision(Verdict.REREAD, decision.changes, reason=reason)
        return decision

    def reread_by_options(self, schema_version: SchemaVersion) -> str:
        """Return why the connector file requires that a table in this version is re-read; empty if it does not.

        It does if it now treats columns or operations otherwise than when the lake's rows were read.
        """
        now, before = self._steps.treatments(schema_version.table), schema_version.treatments
        altered = {name for name, known in before.items() if now.get(name, known) != known} - {SKIPPED}
        missed = set(before.get(SKIPPED, "")) - set(now[SKIPPED])
        if missed:
            return f"skipped.operations has left out changes until now: {', '.join(sorted(missed))}"
        # An excluded column is not read again: it gets no values from now on, until it is captured again.
        if any(now[name] != EXCLUDED for name in altered):
            return f"the connector file now treats columns otherwise than before: {', '.join(sorted(altered))}"
        return ""

    def ends_by_itself(self, paused: Pause) -> bool:
        """Whether the pause ends, by a re-read, once its cause no longer exists, without a command of the user."""
        return paused.ends_by_reread and self._policy.changes is not SchemaChanges.PAUSE

    def is_cause_gone(self, table: TableId, state: TableVersions, current: TableSchema | None) -> bool:
        """Whether a paused table can be re-read as the catalogue describes it now."""
        if current is None or name_clash(table, self._steps.captured(streamed(current))) is not None:
            return False
        base = None if state.schema_version is None else state.schema_version.table
        return base is None or self.decide(state, base, None, current).verdict is not Verdict.REFUSE

    def can_go_on(self, table: TableId, state: TableVersions, last: SchemaVersion, current: TableSchema | None) -> bool:
        """Whether a paused table's changes can be merged with its source's current schema version, without a re-read.

        Raises TableError if the cause of the pause still exists.
        """
        decision = self.decide(state, last.table, None, current)
        if decision.verdict is Verdict.REFUSE and self._policy.changes is not SchemaChanges.PAUSE:
            raise TableError(decision.reason, decision.remedy, str(table))
        return decision.verdict is Verdict.FOLLOW and not decision.operations and self._steps.has_ways(state, last)
