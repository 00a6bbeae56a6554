"""The merge state of one table, and what changes it: an append, a merge, a failure."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from cdc_core.engine.schema.trouble import Trouble
from cdc_core.lake import ChangelogPosition, SliceOutcome, TablePosition, TableVersions, TakenSnapshot
from cdc_core.quality import NONE_RECENT, RecentChanges

_RETRY_SECONDS = 10.0


@dataclass(slots=True)
class MergeState:
    """State of one table. ``backlog`` is the newest commit in its changelog that the lake table may lack.

    It may be the commit of a transaction that is incomplete; it is merged once the stream is past it. ``waits_for`` is
    an LSN that the stream must have passed before the first merge (``snapshot/copy/resume``), or None.
    ``waiting``: its quarantine table may contain changes that are not in the lake. ``whole`` is the last transaction
    that is complete in the changelog. ``version`` is the newest known version of the lake table, ``identity`` its id in
    Delta, ``shown`` the merged LSN stored in it: ``merged`` may be later, if the changes since did not change a row.
    ``failed_at`` is when (monotonic seconds) the last merge failed, None after a successful one, ``error`` the reason.
    ``is_former``: the lake table's rows are of an earlier epoch (``lake/epochs``), so it is read before anything
    is merged. ``trouble`` is set if its folders cannot be used. ``recent`` counts what the rules refused of its latest
    changes. ``due_at``: when (monotonic seconds) the table may be merged again; 0 with the next round.

    It is changed by the methods ``appended``, ``merge_done``, ``chunks_written``, ``failed``, ``seen``,
    ``rest``, ``call`` and ``begin_again`` only, and ``trouble`` by ``MergeStates``.
    """

    versions: TableVersions
    changelog: ChangelogPosition | None = None
    token: int | None = None
    merged: int | None = None
    backlog: int | None = None
    waits_for: int | None = None
    waiting: bool = False
    whole: int | None = None
    version: int | None = None
    shown: int | None = None
    checked_at: float = field(default_factory=time.monotonic)
    failed_at: float | None = None
    error: str = ""
    is_former: bool = False
    identity: str | None = None
    trouble: Trouble | None = None
    recent: RecentChanges = NONE_RECENT
    due_at: float = 0.0

    def is_waiting(self, passed: int) -> bool:
        """Whether changes cannot be merged into its snapshot yet; the stream is past ``passed``."""
        return self.merged is None and self.waits_for is not None and passed < self.waits_for

    @property
    def loses_changes(self) -> bool:
        """Whether its changelog cannot be used: its changes are dropped, and it is stored that it must be re-read."""
        return self.trouble is not None and self.trouble.loses_changes

    @property
    def has_failed(self) -> bool:
        """Whether a merge failed less than _RETRY_SECONDS ago: it is retried after that."""
        return self.failed_at is not None and time.monotonic() - self.failed_at < _RETRY_SECONDS

    @property
    def rests(self) -> bool:
        """Whether the table is left out of rounds, because it was merged a moment ago."""
        return time.monotonic() < self.due_at

    @property
    def is_quiet(self) -> bool:
        """Whether nothing will be due to a table that is current (``record.state_at``) before its state is changed."""
        versions = self.versions
        is_followed = versions.waiting is None and versions.owed is None and not versions.absent
        has_begun = self.waits_for is None or self.merged is not None
        return is_followed and has_begun and self.backlog is None and not self.rests

    @property
    def awaits_retry(self) -> bool:
        """Whether the last merge failed and is to be retried."""
        has_more = self.backlog is not None or bool(self.versions.pending) or self.versions.holds_back
        return self.failed_at is not None and has_more

    def is_due(self, to_lsn: int) -> bool:
        """Whether a round without a batch has work for the table: transactions complete at ``to_lsn``, or steps."""
        if self.versions.holds_back or self.has_failed or self.rests:
            return False
        return bool(self.versions.pending) or (self.backlog is not None and self.backlog <= to_lsn)

    @classmethod
    def at(cls, position: TablePosition, taken: TakenSnapshot | None, *, has_quarantine: bool) -> MergeState:
        """Return the state of a table at the position in its commits; ``taken`` is the snapshot in force."""
        place, end = position.place, position.changelog
        has_backlog = end is not None and (place.lsn is None or place.lsn < end.commit_lsn)
        return cls(
            TableVersions(),
            changelog=end,
            token=place.token,
            merged=place.lsn,
            backlog=end.commit_lsn if end is not None and has_backlog else None,
            waits_for=int(taken.lsn) if taken is not None and taken.since is not None else None,
            waiting=has_quarantine,
            whole=None if end is None else position.whole,
            version=position.version,
            shown=place.lsn,
            is_former=position.is_former,
            identity=position.identity,
        )

    def appended(self, last: int, end: ChangelogPosition, whole: int | None) -> None:
        """Rows up to the commit ``last`` are durable in the changelog, which ends at ``end``; ``whole``: see above."""
        self.backlog, self.changelog = last, end
        self.whole = max((lsn for lsn in (self.whole, whole) if lsn), default=None)

    def merge_done(self, outcome: SliceOutcome, schema_version: int, *, is_replay: bool) -> None:
        """A slice was merged, or the part of it that could be; the lake table has ``schema_version`` now."""
        done = outcome.done
        self.failed_at, self.merged = None, outcome.merged
        if outcome.waits:
            # As after a failure: what the slice wrote to its quarantine table is read by the next round.
            self.waiting = True
        elif done.quarantined is not None:
            self.waiting = bool(done.quarantined.waiting)
        if outcome.lake is not None:
            self.seen(outcome.lake.version, outcome.lake.identity, outcome.lake.lsn)
        self.versions.in_force = max(self.versions.in_force, schema_version)
        if self.backlog is not None and outcome.merged is not None and self.backlog <= outcome.merged:
            self.backlog = None
        if done.check is not None:
            counts = done.check.rows, done.check.quarantined
            self.recent = RecentChanges() if is_replay else self.recent.and_also(*counts)

    def chunks_written(self, to_lsn: int, version: int | None, *, refused: bool) -> None:
        """Rows of chunks were written at the LSN up to which the table is merged; None if there were none."""
        self.merged = max(self.merged or 0, to_lsn)
        self.waiting |= refused
        if version is not None:
            self.seen(version, self.identity, to_lsn)

    def failed(self, error: str, *, is_retried: bool = True, of_slice: bool = False) -> None:
        """A merge or a re-read failed; it is tried again after some seconds, unless not ``is_retried``.

        A failed slice may have written to its quarantine table, so that is read in the next round.
        """
        self.failed_at, self.error = time.monotonic() if is_retried else None, error
        self.waiting |= of_slice

    def seen(self, version: int, identity: str | None, shown: int | None) -> None:
        """The lake table's newest version was seen just now."""
        self.version, self.identity, self.shown = version, identity, shown
        self.checked_at = time.monotonic()

    def rest(self, until: float) -> None:
        """Leave the table out of rounds until then (monotonic seconds), if nothing of its changes is left to merge."""
        if self.backlog is None:
            self.due_at = until

    def call(self) -> None:
        """Merge with the next round, although the table rests."""
        self.due_at = 0.0

    def begin_again(self) -> None:
        """Merge with the next round, and reset the counts of refused changes."""
        self.failed_at, self.recent = None, NONE_RECENT
        self.call()

    def take_over(self, before: MergeState) -> None:
        """Keep the state that is not in the table's commits, after these were read again."""
        self.failed_at, self.error, self.recent = before.failed_at, before.error, before.recent
