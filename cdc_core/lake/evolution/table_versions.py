"""One table's schema versions: the one in force, the steps to the next, and why it is paused or re-read."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_core.lake.schema.project import SchemaStep
from cdc_core.lake.stores.schema_log import Pause, SchemaVersion, TableHistory
from cdc_core.schema import Decision, Fingerprint, TableSchema


@dataclass(slots=True)
class TableVersions:
    """State of one table. ``schema_version`` is the one decided last, ``in_force`` the number stored in the lake table.

    ``reread`` is the reason why the table must be re-read, ``paused`` the reason why it is not merged. ``waiting`` is a
    plan, with the table after it, that is applied once the stream has passed its LSN, because no row has changed since
    the source changed.
    ``absent``: the table did not exist when it was to be re-read. ``owed`` is the reason for a recorded re-read that
    does not hold back changes: the table is paused, or nothing has its name now.
    ``reserved`` is the number of the schema version that the table gets when it is re-read. ``seen`` is the fingerprint
    up to which changes in the catalogue were decided on, ``by_version`` the numbers of this run's Relation messages.

    The engine's ``schema/pauses`` sets ``reread``, ``absent``, ``owed`` and ``paused``; its ``schema/versions`` the
    others, of which a round sets ``in_force`` once it has committed.
    """

    schema_versions: dict[int, SchemaVersion] = field(default_factory=dict)
    steps: dict[int, SchemaStep] = field(default_factory=dict)
    schema_version: SchemaVersion | None = None
    in_force: int = 0
    reread: str | None = None
    absent: bool = False
    owed: str | None = None
    paused: Pause | None = None
    waiting: tuple[int, Decision, TableSchema] | None = None
    seen: Fingerprint | None = None
    by_version: dict[int, int] = field(default_factory=dict)
    reserved: int = 0

    @classmethod
    def of(cls, history: TableHistory, in_force: int | None) -> TableVersions:
        """Return the state that follows from the log and from the number in the lake table's commits, if it has one."""
        state = cls(dict(history.versions), in_force=in_force or 0, paused=history.paused)
        if in_force is not None and in_force in history.versions:
            state.schema_version = history.versions[in_force]
            state.seen = state.schema_version.table.fingerprint
        if history.reread is not None and (in_force or 0) <= history.reread[0]:
            state.reread, state.owed = (
                (history.reread[1], None) if history.paused is None else (None, history.reread[1])
            )
        return state

    @property
    def newest(self) -> int:
        """The highest number that is assigned or reserved."""
        return max([self.reserved, self.in_force, *self.schema_versions])

    @property
    def holds_back(self) -> bool:
        """Whether the lake table must not be changed for now."""
        return self.reread is not None or self.paused is not None

    @property
    def is_on_its_way(self) -> bool:
        """Whether the lake table will change without a user's action: by a re-read, or by a plan with a later LSN."""
        is_reread = self.reread is not None and not self.absent
        return self.paused is None and (is_reread or self.waiting is not None)

    @property
    def pending(self) -> tuple[SchemaStep, ...]:
        """The steps not yet applied to the lake table."""
        if self.schema_version is None or not self.in_force:
            return ()
        steps: list[SchemaStep] = []
        at: int | None = self.schema_version.number
        while at is not None and at != self.in_force:
            if at not in self.steps:
                return ()
            steps.append(self.steps[at])
            at = self.schema_versions[at].parent
        return tuple(reversed(steps)) if at is not None else ()
