"""Incremental snapshots into the lake as a pure function: random requests, failures and kills, and what still holds.

The model is the world around the function: what is stored, which rows are in the lake, which files of rows exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.engine.backfill.transitions import (
    MAX_PASSES,
    MAX_TRIES,
    Action,
    AllEnded,
    Backfill,
    Discard,
    Event,
    Followed,
    GivenUp,
    GroupRead,
    HeldUp,
    Incomplete,
    Postponed,
    ReadAgain,
    ReadBegun,
    ReadFailed,
    Requested,
    Store,
    TableEnded,
    WriteBegun,
    WriteFailed,
    Written,
    step,
)
from cdc_core.schema.table import TableId
from cdc_core.snapshot.incremental.groups import ChunkFile, ChunkGroup
from cdc_core.snapshot.incremental.lake_progress import LakeProgress
from cdc_core.snapshot.incremental.progress import Collection, Key
from cdc_core.snapshot.notifications import ScanStatus
from tests.support.sampling import examples

TABLES = [Collection(TableId("public", name)) for name in ("a", "b")]
LAST, SIZE = 5, 2


def key(number: int) -> Key:
    return (str(number),)


def number(one: Key) -> int:
    return int(one[0] or 0)


@dataclass
class World:
    """Tables with the keys 1 to ``LAST``. ``owed`` are keys that were to be read again and were not.

    ``begun`` are the number and the keys of the last group whose writing began, ``unfinished`` the same if its rows may
    be in the lake, while no state says that they are.
    """

    stored: str = ""
    state: Backfill = field(default_factory=lambda: Backfill.of(LakeProgress()))
    reading: LakeProgress | None = None
    files: list[ChunkGroup] = field(default_factory=list)
    keys: dict[int, frozenset[int]] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    owed: set[int] = field(default_factory=set)
    owed_if_killed: set[int] = field(default_factory=set)
    ordinals: dict[int, tuple[TableId, frozenset[int]]] = field(default_factory=dict)
    begun: tuple[int, frozenset[int]] | None = None
    unfinished: tuple[int, frozenset[int]] | None = None
    made: list[ChunkGroup] = field(default_factory=list)
    said: list[Action] = field(default_factory=list)

    def do(self, event: Event) -> tuple[Action, ...]:
        before = self.state.progress
        self.state, actions = step(self.state, event)
        if self.state.progress.current != before.current:
            ended = [action.status for action in actions if isinstance(action, TableEnded)]
            if ScanStatus.SUCCEEDED in ended:
                assert self.written == set(range(1, LAST + 1))
                assert not self.owed or any(isinstance(action, Incomplete) for action in actions)
            assert ended or isinstance(event, Requested)
            self._start()
        if self.state.progress.current == before.current and before.maximum_key and not self.state.progress.maximum_key:
            self._start()
        for action in actions:
            self._perform(action)
        assert self.files == ([] if self.state.waiting is None else [self.state.waiting])
        assert self.state.is_reading == (self.reading is not None)
        return actions

    def _start(self) -> None:
        self.written, self.owed, self.unfinished = set(), set(), None

    def _perform(self, action: Action) -> None:
        self.said.append(action)
        if isinstance(action, Store):
            self.stored, self.owed_if_killed = action.durable.to_json(), set(self.owed)
        if isinstance(action, AllEnded):
            assert not LakeProgress.from_json(self.stored).progress.queue
        if isinstance(action, Discard):
            if action.reading:
                self.reading = None
            if action.group is not None:
                self.files.remove(action.group)

    def begin(self) -> None:
        self.reading = self.state.next_read
        assert self.reading is not None
        self.do(ReadBegun())

    def group(self) -> ChunkGroup:
        """The rows after the state from which they are read, as ``GroupReader`` gives them."""
        after = self.reading
        assert after is not None and after.progress.current is not None
        progress, scanned = after.progress, None
        if progress.maximum_key is None:
            progress, scanned = progress.restarted().begun(("k",), key(LAST)), 10
        at = 0 if progress.last_key is None else number(progress.last_key)
        if at == LAST and after.rest:
            again = after.rest[:SIZE]
            found = frozenset(map(number, again))
            return self._made(after, progress, found, rest=len(again), ended=ScanStatus.SUCCEEDED)
        is_redone = after.upto is not None and progress.key == after.progress.key
        upto = number(after.upto) if is_redone and after.upto is not None else min(at + SIZE, LAST)
        progress, found = progress.behind(key(upto)), frozenset(range(at + 1, upto + 1))
        ended = ScanStatus.SUCCEEDED if upto == LAST else None
        return self._made(after, progress, found, scanned=scanned, ended=ended)

    def _made(self, after: LakeProgress, progress: Any, found: frozenset[int], **facts: Any) -> ChunkGroup:
        current = after.progress.current
        assert current is not None
        chunks = (ChunkFile(f"chunk-{len(self.made)}", len(found), "1:1:", 0),) if found else ()
        made = ChunkGroup(current, None, progress, chunks, 20 + len(self.made), **facts)
        self.made.append(made)
        self.keys[id(made)] = found
        return made

    def read(self, **altered: Any) -> None:
        made = self.group() if not altered else ChunkGroup(TABLES[0], None, self.state.progress, **altered)
        self.reading = None
        self.files.append(made)
        self.do(GroupRead(made))

    def postpone(self) -> None:
        self.reading = None
        self.do(Postponed())
        assert not self.state.is_busy or self.state.progress.blocking

    def fail_to_read(self, *, is_temporary: bool) -> None:
        self.reading = None
        self.do(ReadFailed(is_temporary))

    def begin_write(self) -> ChunkGroup:
        group = self.state.waiting
        assert group is not None and self.state.table is not None
        self.do(Followed(is_current=True))
        self.do(WriteBegun())
        keys, ordinal = self.keys[id(group)], self.state.durable.ordinal
        # Rows with this number may be in the changelog: others under the same number would be left out, and the same
        # under another number would be there twice.
        assert self.ordinals.setdefault(ordinal, (self.state.table, keys)) == (self.state.table, keys)
        assert self.unfinished in (None, (ordinal, keys))
        self.begun = self.unfinished = (ordinal, keys)
        return group

    def write(self, rest: tuple[Key, ...] | None = (), *, killed: bool = False) -> None:
        group = self.begin_write()
        keys = self.keys[id(group)]
        self.written |= keys
        if killed:
            return self.kill()
        if group.rest:
            self.owed -= keys
        self.owed |= {number(one) for one in rest or ()}
        self.unfinished = None
        return self.do_written(rest)

    def do_written(self, rest: tuple[Key, ...] | None) -> None:
        self.do(Written(100 + len(self.made), rest))

    def kill(self) -> None:
        self.state = Backfill.of(LakeProgress.from_json(self.stored))
        self.reading, self.files, self.owed = None, [], set(self.owed_if_killed)
        # The state after a group was written is not stored until the next one's writing begins.
        self.unfinished = None if self.state.durable.upto is None else self.begun

    def go_on(self) -> None:
        """One step without failures."""
        if self.state.waiting is not None:
            self.write()
        elif self.reading is not None:
            self.read()
        else:
            self.begin()

    def finish(self) -> None:
        self.do(Requested(self.state.progress.pausing(False)))
        for _ in range(100):
            if not self.state.progress.queue:
                return
            self.go_on()
        raise AssertionError("the snapshots do not end")


def requested(world: World, draw: Any) -> None:
    progress, signal = world.state.progress, world.state.durable.signal
    changes = [
        lambda one: progress.with_tables((one,)),
        lambda one: progress.without(lambda table: table == one.table),
        lambda one: progress.pausing(not progress.paused),
    ]
    change = draw(st.sampled_from(changes))
    world.do(Requested(change(draw(st.sampled_from(TABLES))), (signal[0] + 1, 0)))
    assert world.state.durable.signal == (signal[0] + 1, 0) and world.stored == world.state.durable.to_json()


def failed_write(world: World, *, from_start: bool) -> None:
    world.begin_write()
    world.do(WriteFailed(from_start))


def written(world: World, draw: Any) -> None:
    keys = st.sets(st.integers(1, LAST), max_size=3).map(lambda found: tuple(map(key, sorted(found))))
    world.write(draw(st.one_of(st.just(()), keys, st.none())))


ALWAYS = [requested, requested, lambda world, draw: world.kill()]
READING = [
    *[lambda world, draw: world.read()] * 6,
    lambda world, draw: world.read(is_altered=True),
    lambda world, draw: world.read(ended=ScanStatus.EMPTY),
    lambda world, draw: world.postpone(),
    lambda world, draw: world.fail_to_read(is_temporary=True),
    lambda world, draw: world.fail_to_read(is_temporary=False),
]
WAITING = [
    *[written] * 6,
    lambda world, draw: world.write(killed=True),
    lambda world, draw: world.do(Followed(is_current=False)),
    lambda world, draw: failed_write(world, from_start=False),
    lambda world, draw: failed_write(world, from_start=True),
]


def happen(world: World, draw: Any) -> None:
    """One event that is possible now."""
    possible = list(ALWAYS)
    if world.state.next_read is not None:
        possible += [lambda world, draw: world.begin()] * 4
    if world.reading is not None and world.state.waiting is None:
        possible += READING
    if world.state.waiting is not None:
        possible += WAITING
    draw(st.sampled_from(possible))(world, draw)


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_whatever_happens_each_table_is_read_whole_and_no_file_is_left(data):
    world = World()
    world.do(Requested(world.state.progress.with_tables(tuple(TABLES)), (1, 0)))
    for _ in range(data.draw(st.integers(0, 40))):
        happen(world, data.draw)
    world.finish()
    assert not world.files and LakeProgress.from_json(world.stored).progress.queue == ()


def begun() -> World:
    world = World()
    world.do(Requested(world.state.progress.with_tables((TABLES[0],)), (1, 0)))
    world.begin()
    return world


def test_the_next_group_is_read_while_one_waits_unless_it_depends_on_it():
    world = begun()
    world.read()
    following = world.state.next_read
    assert following is not None and following.progress.last_key == key(SIZE) and following.upto is None
    world.begin()
    world.write()
    assert world.reading is not None and world.state.waiting is None
    world.read()
    world.write(rest=(key(1),))
    world.begin()
    world.read()
    assert world.state.waiting is not None and world.state.waiting.ended and world.state.next_read is None


def test_a_table_is_given_up_after_failures_in_a_row_and_only_then():
    world = begun()
    for _ in range(MAX_TRIES - 1):
        world.fail_to_read(is_temporary=True)
        world.begin()
    world.read()
    world.write()
    assert world.state.tries == 0
    for _ in range(MAX_TRIES):
        world.begin()
        world.fail_to_read(is_temporary=True)
    table = TABLES[0].table
    assert [a for a in world.said if isinstance(a, GivenUp | TableEnded)] == [
        GivenUp(table),
        TableEnded(ScanStatus.SKIPPED),
    ]


def test_a_table_whose_keys_keep_changing_is_read_again_so_often_and_then_said():
    world = begun()
    for _ in range(100):
        if world.state.waiting is not None:
            world.write(rest=None)
        elif world.state.progress.queue:
            world.go_on()
    table = TABLES[0].table
    told = [action for action in world.said if isinstance(action, ReadAgain | Incomplete | TableEnded)]
    assert told == [*[ReadAgain(table)] * MAX_PASSES, Incomplete(table), TableEnded(ScanStatus.SUCCEEDED)]


def test_rows_that_wait_for_the_lake_table_are_said_once_and_keep_no_run_busy():
    world = begun()
    for _ in range(3):
        world.read()
        world.do(Followed(is_current=False))
        assert not world.state.is_busy
        world.begin()
    assert [action for action in world.said if isinstance(action, HeldUp)] == [HeldUp(TABLES[0].table)]
    world.do(Requested(world.state.progress.without(lambda table: True).with_tables((TABLES[1],))))
    assert world.state.is_busy, "the next table waits for nothing"


@pytest.mark.parametrize("scanned_before", [0, 7])
def test_changes_are_needed_since_the_group_before_the_last_one(scanned_before):
    world = begun()
    world.read()
    world.write()
    state = Backfill(world.state.durable, scanned_before)
    assert state.needed == {TABLES[0].table: scanned_before} and Backfill.of(LakeProgress()).needed == {}
