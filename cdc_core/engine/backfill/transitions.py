"""What follows from each event of an incremental snapshot into the lake: (state, event) ─▶ (state, actions), pure.

    Requested      signals, or a blocking snapshot, changed the queue
    ReadBegun ─▶ GroupRead │ ReadFailed │ Postponed
                     └─▶ Followed ─▶ WriteBegun ─▶ Written │ WriteFailed

``Backfill.durable`` is what is stored, and all that the next run knows. It is stored before a group is written, with
the group's last key (``WriteBegun``): after a kill the next run reads the same range with the same ordinal. It needs
not be stored after the group was written: the next ``WriteBegun``, or the table's end, does that. Each group that was
read is named by exactly one ``Discard``, which removes its files.

``LakeSnapshots`` asks the questions, performs the actions, and decides when the next step is due.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc_core.schema.table import TableId
from cdc_core.snapshot.incremental.groups import ChunkGroup
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.progress import Key, Progress
from cdc_core.snapshot.notifications import ScanStatus

MAX_TRIES, MAX_PASSES = 60, 5
# With more keys to be read again than this, the table is read again as a whole.
_MAX_REST = 20_000


@dataclass(frozen=True, slots=True)
class Backfill:
    """The state of one run. ``waiting`` is a group that was read and is not written yet; at most one is read beside it.

    ``is_held_up``: the table's rows wait until the lake table has the columns of the source, or for older transactions.
    ``tries`` counts failures in a row. ``scanned_before`` is ``durable.scanned`` before the last group was written.
    """

    durable: LakeProgress
    scanned_before: int
    waiting: ChunkGroup | None = None
    is_reading: bool = False
    is_held_up: bool = False
    tries: int = 0

    @classmethod
    def of(cls, stored: LakeProgress) -> Backfill:
        """Return the state in which a run begins."""
        return cls(stored, stored.scanned)

    @property
    def progress(self) -> Progress:
        """The queue, and how much of its current table is written."""
        return self.durable.progress

    @property
    def table(self) -> TableId | None:
        """The current table."""
        current = self.progress.current
        return None if current is None else current.table

    @property
    def is_busy(self) -> bool:
        """Whether rows are to be read or written, unless the table is paused, being re-read, or cannot be read yet."""
        has_chunks = bool(self.progress.queue) and not self.progress.paused
        return (has_chunks and not self.is_held_up) or bool(self.progress.blocking)

    @property
    def needed(self) -> dict[TableId, int]:
        """The LSN after which changes of the current table are still read, 0 for all of them.

        The changes that a chunk does not show are left out of it when it is written, and changes are searched for rows
        that moved. While one group is written the next is read, so that is since the group before the last one.
        """
        return {} if self.table is None else {self.table: min(self.scanned_before, self.durable.scanned)}

    @property
    def next_read(self) -> LakeProgress | None:
        """The state after which the next group is read; None if none is to be read now."""
        if self.is_reading or not self.progress.queue or self.progress.paused:
            return None
        if self.waiting is None:
            return self.durable
        if self.waiting.ended is not None or self.waiting.rest:
            return None  # the next range depends on the result of writing this group
        return replace(self.durable, progress=self.waiting.progress, upto=None)


@dataclass(frozen=True, slots=True)
class Requested:
    """The queue is ``progress`` now; ``signal`` is the position of the last processed signal, None if unchanged."""

    progress: Progress
    signal: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ReadBegun:
    """The group after ``Backfill.next_read`` is being read."""


@dataclass(frozen=True, slots=True)
class GroupRead:
    """``group`` was read."""

    group: ChunkGroup


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Rows could not be read; ``is_temporary``: they can be later."""

    is_temporary: bool


@dataclass(frozen=True, slots=True)
class Postponed:
    """Rows cannot be read yet, because of older transactions: they are read later, however often this happens."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Whether the lake table of the waiting group has the current columns of the source, and is merged by rounds."""

    is_current: bool


@dataclass(frozen=True, slots=True)
class WriteBegun:
    """The waiting group is about to be written."""


@dataclass(frozen=True, slots=True)
class Written:
    """The waiting group is in the lake table, which is merged up to ``reached``.

    ``rest`` are keys to be read again, None if they cannot be converted to text.
    """

    reached: int
    rest: tuple[Key, ...] | None = ()


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The waiting group could not be written. ``from_start``: the table can only be read again from its first row.

    ``is_final``: another attempt would end in the same way, so the table is skipped.
    """

    from_start: bool
    is_final: bool = False


Event = Requested | ReadBegun | GroupRead | ReadFailed | Postponed | Followed | WriteBegun | Written | WriteFailed


@dataclass(frozen=True, slots=True)
class Store:
    """Store this, before anything else is done."""

    durable: LakeProgress


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove the files of ``group``; with ``reading``, end the group that is being read and remove its files too."""

    group: ChunkGroup | None
    reading: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Read nothing for a moment."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """``rows`` of the table are in the lake; ``progress`` is the state after them."""

    table: TableId
    rows: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class TableEnded:
    """The current table ended, and is removed from the queue."""

    status: ScanStatus


@dataclass(frozen=True, slots=True)
class AllEnded:
    """The queue is empty, and this is stored."""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """The table's rows wait for the first time until the lake table has the columns of the source."""

    table: TableId


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The table is skipped after ``MAX_TRIES`` failures."""

    table: TableId


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The table is read again, because the keys of too many rows changed."""

    table: TableId


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The same, but it was read ``MAX_PASSES`` times again: unsent values of these rows may be missing."""

    table: TableId


Action = Store | Discard | Wait | Delivered | TableEnded | AllEnded | HeldUp | GivenUp | ReadAgain | Incomplete
Step = tuple[Backfill, tuple[Action, ...]]


def step(state: Backfill, event: Event) -> Step:
    """Return the state after an event, and what is to be done, in this order."""
    match event:
        case Requested():
            found = _requested(state, event)
        case ReadBegun():
            found = replace(state, is_reading=True), ()
        case GroupRead(group):
            found = _read(replace(state, is_reading=False), group)
        case ReadFailed(is_temporary):
            failed = replace(state, is_reading=False)
            found = _retried(failed) if is_temporary else _ended(failed, ScanStatus.SQL_EXCEPTION)
        case Postponed():
            found = _held_up(replace(state, is_reading=False))
        case Followed(is_current=True):
            found = replace(state, is_held_up=False), ()
        case Followed():
            said = () if state.is_held_up or state.table is None else (HeldUp(state.table),)
            found = _then((state, said), _held_up)
        case WriteBegun():
            found = _write_begun(state)
        case Written():
            found = _written(state, event)
        case WriteFailed(is_final=True):
            found = _ended(state, ScanStatus.SKIPPED)
        case WriteFailed(from_start):
            again = _restarted(state, state.durable.passes) if from_start else (state, ())
            found = _then(again, _retried)
    return found


def _then(done: Step, following: Callable[[Backfill], Step]) -> Step:
    state, actions = following(done[0])
    return state, (*done[1], *actions)


def _requested(state: Backfill, event: Requested) -> Step:
    """Follow a changed queue: rows read for a table that is no longer the current one are discarded."""
    before, now = state.progress, event.progress
    durable = state.durable if event.signal is None else replace(state.durable, signal=event.signal)
    is_other = before.current != now.current
    if not is_other and (before.maximum_key is None or now.maximum_key is not None):
        durable = replace(durable, progress=now)
        return replace(state, durable=durable), (Store(durable),)
    durable = durable.for_next_table(now)
    dropped, actions = _dropped(state)
    if is_other:
        dropped = replace(dropped, is_held_up=False, tries=0)
    return replace(dropped, durable=durable), (*actions, Store(durable))


def _dropped(state: Backfill) -> Step:
    if state.waiting is None and not state.is_reading:
        return state, ()
    return replace(state, waiting=None, is_reading=False), (Discard(state.waiting, state.is_reading),)


def _read(state: Backfill, group: ChunkGroup) -> Step:
    if group.is_altered:
        return _then((state, (Discard(group),)), _retried)
    if group.ended not in (None, ScanStatus.SUCCEEDED):
        # The table is empty, or cannot be read in chunks.
        ended = group.ended
        return _then((state, (Discard(group),)), lambda done: _ended(done, ended))
    assert state.waiting is None
    return replace(state, waiting=group), ()


def _retried(state: Backfill) -> Step:
    """Read again what was not written, after a moment; the table ends after too many failures."""
    dropped, actions = _dropped(state)
    tried = replace(dropped, tries=state.tries + 1)
    if tried.tries < MAX_TRIES or tried.table is None:
        return tried, (*actions, Wait())
    return _then((tried, (*actions, Wait(), GivenUp(tried.table))), lambda done: _ended(done, ScanStatus.SKIPPED))


def _held_up(state: Backfill) -> Step:
    """Read later what was not written, however often: a bounded run may end before."""
    dropped, actions = _dropped(state)
    return replace(dropped, is_held_up=True), (*actions, Wait())


def _write_begun(state: Backfill) -> Step:
    group, durable = state.waiting, state.durable
    assert group is not None
    mine = group.progress
    written = durable.progress.last_key if durable.progress.key == mine.key else None
    # A group that was started and did not finish keeps its ordinal: its rows may be in the changelog already.
    is_redone = durable.upto is not None and durable.upto == mine.last_key
    durable = replace(
        durable,
        progress=_with_keys(durable.progress, mine, written),
        scanned=durable.scanned if group.scanned is None else group.scanned,
        upto=mine.last_key,
        ordinal=durable.ordinal + (not is_redone),
    )
    return replace(state, durable=durable), (Store(durable),)


def _written(state: Backfill, event: Written) -> Step:
    group, before, table = state.waiting, state.durable, state.table
    assert group is not None and table is not None
    rest = dict.fromkeys([*before.rest[group.rest :], *(event.rest or ())])
    again = before.again or event.rest is None or len(rest) > _MAX_REST
    durable = replace(
        before,
        progress=_with_keys(before.progress, group.progress, group.progress.last_key),
        scanned=event.reached,
        upto=None,
        rest=() if again else tuple(rest),
        again=again,
    )
    actions: tuple[Action, ...] = (Discard(group),)
    if group.rows:
        actions = (*actions, Delivered(table, group.rows, durable.progress))
    state = replace(state, durable=durable, scanned_before=before.scanned, waiting=None, tries=0)
    if group.ended is None or durable.rest:
        return state, actions
    if again and durable.passes < MAX_PASSES:
        return _then((state, (*actions, ReadAgain(table))), lambda done: _restarted(done, durable.passes + 1))
    said = (Incomplete(table),) if again else ()
    return _then((state, (*actions, *said)), lambda done: _ended(done, ScanStatus.SUCCEEDED))


def _with_keys(progress: Progress, of: Progress, last_key: Key | None) -> Progress:
    """Return the progress with the current table's keys as in ``of``; all rows up to ``last_key`` are written."""
    return replace(progress, key=of.key, maximum_key=of.maximum_key, last_key=last_key)


def _restarted(state: Backfill, passes: int) -> Step:
    """Read the current table again from its first row."""
    dropped, actions = _dropped(state)
    durable = replace(state.durable.for_next_table(state.progress.restarted()), passes=passes)
    return replace(dropped, durable=durable), (*actions, Store(durable))


def _ended(state: Backfill, status: ScanStatus) -> Step:
    """End the current table and go on with the next."""
    dropped, actions = _dropped(state)
    progress = state.progress.next_table()
    durable = state.durable.for_next_table(progress)
    ended = replace(dropped, durable=durable, tries=0, is_held_up=False)
    if state.table is None:
        return ended, (*actions, Store(durable))
    last = (AllEnded(),) if progress.current is None else ()
    return ended, (*actions, TableEnded(status), Store(durable), *last)
