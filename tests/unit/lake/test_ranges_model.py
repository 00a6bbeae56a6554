"""Ranges of a key that are read side by side, staged, and written in any order, of two jobs at once: the lake is exact.

As ``test_chunk_rows_model``, with the search for rows that moved as the streaming run does it (``Search``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cdc_core.lake.apply.chunk_rows import ChunkRows, chunk_states, key_texts, moved_unsent
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.rows.survey import hidden
from cdc_core.snapshot.incremental.lake_progress import Search
from tests.delta.source_model import plain
from tests.support.sampling import examples
from tests.unit.lake.test_chunk_rows_model import KEY, MANY_ROUNDS, MOST, Lake, Server, is_in_force, key_of

Row = tuple[int, str]


@dataclass
class Reading:
    """A range that is being read: its rows after ``last`` up to ``upto``; ``keys`` are read instead, if there are any.

    ``reached`` is the end of the WAL behind its last chunk, None before that.
    """

    since: int
    last: Row | None
    upto: Row | None
    keys: tuple[tuple[str, ...], ...] = ()
    chunks: list[ChunkRows] = field(default_factory=list)
    reached: int | None = None


class Ranges:
    """The ranges of jobs over one lake table."""

    def __init__(self, server: Server, lake: Lake, chance: random.Random) -> None:
        self.server, self.lake, self.chance = server, lake, chance
        self.reading: list[Reading] = []
        self.staged: list[Reading] = []
        self.search: Search | None = None

    def begin(self, ranges: int) -> None:
        """A job plans its ranges: the table's keys are cut anywhere."""
        since, shown = self.server.settled, [key_of(row) for row in self.server.shown()]
        bounds = sorted(self.chance.sample(shown, min(ranges - 1, len(shown))))
        ends: list[Row | None] = [*bounds, shown[-1] if shown else None]
        starts: list[Row | None] = [None, *bounds]
        self.reading += [Reading(since, after, upto) for after, upto in zip(starts, ends, strict=True)]

    def read_some(self) -> None:
        """Some range's next chunk is read; it is staged behind its last."""
        one = self.chance.choice(self.reading)
        rows = self.server.shown()
        if one.keys:
            wanted = {(int(h), k) for h, k in one.keys}
            one.chunks.append(self.lake._chunk([row for row in rows if key_of(row) in wanted]))
            found = []
        else:
            found = [row for row in rows if one.upto is not None and key_of(row) <= one.upto]
            found = [row for row in found if one.last is None or key_of(row) > one.last][: self.lake.size]
        if found:
            one.last = key_of(found[-1])
            one.chunks.append(self.lake._chunk(found))
        else:
            one.reached = self.server.lsns[-1] if self.server.lsns else 0
            self.reading.remove(one)
            self.staged.append(one)

    def write_some(self) -> None:
        """A range that the lake has passed is written, in parts between which the stream goes on."""
        ready = [one for one in self.staged if one.reached is not None and self.lake.merged >= one.reached]
        if not ready:
            return
        one = self.chance.choice(ready)
        part = one.chunks[: self.chance.randint(1, 3)]
        is_whole = len(part) == len(one.chunks)
        self._write(one, part, is_whole=is_whole)
        # A run that is killed before it has stored this writes the same again.
        if self.chance.random() < 0.2:
            return
        del one.chunks[: len(part)]
        if is_whole:
            self.staged.remove(one)

    def _write(self, one: Reading, part: list[ChunkRows], *, is_whole: bool) -> None:
        lake, search = self.lake, self.search or Search(one.since, one.since)
        changes = self.server.between(0, lake.merged)
        if part:
            lake.content.commit(lake._effect(chunk_states(part, changes, KEY, lake.schema, lake.merged).changes()))
        late = changes.column("__commit_lsn").to_numpy() > search.begin(one.since)
        for chunk in part[:1]:
            late |= hidden(changes, chunk.visible)
        moved = moved_unsent(changes.filter(pa.array(late)), KEY, lake.schema)
        found = search.searched(one.since, lake.merged)
        self.search = found.with_moved(key_texts(moved, KEY) or (), one.keys if is_whole else ())

    def read_moved(self) -> None:
        """Once nothing else is left, rows that moved are read again."""
        if self.search is None or self.reading or self.staged:
            return
        if self.search.moved:
            self.reading.append(Reading(self.search.upto, None, None, self.search.moved[: self.lake.size]))
        else:
            self.search = None


def take(server: Server, lake: Lake, chance: random.Random, statements: int, ranges: int) -> None:
    """Everything that goes on beside two jobs, in any order."""

    def goes_on() -> None:
        for _ in range(chance.randrange(3) if len(server.lsns) < MOST else 0):
            server.commit(chance.randint(1, statements))
        server.end_some()

    jobs, left = Ranges(server, lake, chance), [chance.randint(1, ranges), chance.randint(1, ranges)]
    for _ in range(2 * MANY_ROUNDS):
        goes_on()
        if left and (chance.random() < 0.1 or not (jobs.reading or jobs.staged)):
            jobs.begin(left.pop())
        if jobs.reading:
            jobs.read_some()
        lake.merge(chance.choice(server.lsns or [0]))
        jobs.write_some()
        jobs.read_moved()
        if not left and not jobs.reading and not jobs.staged and jobs.search is None:
            break
    else:
        raise AssertionError("the jobs did not end")
    lake.merge(server.lsns[-1] if server.lsns else 0)


@settings(max_examples=examples(40), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 10**6),
    histories=st.integers(1, 5),
    truncates=st.booleans(),
    start=st.integers(1, 15),
    statements=st.integers(1, 8),
    size=st.integers(1, 6),
    ranges=st.integers(1, 5),
    mode=st.sampled_from(DeleteMode),
)
def test_ranges_in_any_order_leave_the_lake_as_the_source(
    seed: int, histories: int, truncates: bool, start: int, statements: int, size: int, ranges: int, mode: DeleteMode
) -> None:
    server, chance = Server(seed, histories, truncates), random.Random(seed + 2)
    server.commit(start)
    server.late.clear()
    lake = Lake(server, chance, size, mode)
    take(server, lake, chance, statements, ranges)
    assert plain([row for row in lake.content.rows if is_in_force(row)]) == plain(server.table.rows)
