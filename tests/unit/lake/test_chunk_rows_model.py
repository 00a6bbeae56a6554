"""Chunks that are applied beside a stream, over any history: the lake ends as the source, whatever it was before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from cdc_core.lake.apply.changes import Changes, apply
from cdc_core.lake.apply.chunk_rows import ChunkRows, chunk_states, key_texts, moved_unsent
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.delete_columns import as_live
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conform import plain_schema
from cdc_core.lake.rows.survey import hidden
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.delta.source_model import ROW, TABLE, SourceTable, plain
from tests.support.content import MemoryContent
from tests.support.hows import HOWS, prepared, ways_of
from tests.support.sampling import examples
from tests.support.spark import AT, change, change_schema
from tests.support.truncates import applied as applied_slice
from tests.support.truncates import prepared as prepared_slice

HARD = plain_schema(lake_schema(ROW))
KEY = ("h", "k")
MOST = 60
MANY_ROUNDS = 400


def key_of(row: dict[str, Any]) -> tuple[int, str]:
    return row["h"], row["k"]


@dataclass
class Server:
    """A source whose transactions end later than their commits are in the WAL, as far as nobody waits for them."""

    seed: int
    histories: int
    truncates: bool
    changes: list[dict[str, Any]] = field(default_factory=list)
    lsns: list[int] = field(default_factory=list)
    late: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.table = SourceTable(self.seed, self.histories, truncates=self.truncates)
        self.chance = random.Random(self.seed + 1)
        self.changed: list[set[int]] = []
        self.after: list[dict[int, list[dict[str, Any]]]] = []

    def commit(self, statements: int) -> None:
        """One transaction's commit gets into the WAL."""
        made = self.table.next_transaction(statements)
        number = len(self.lsns)
        self.lsns.append(self.table.lsn)
        self.changes += [{**row, "__xid": 1000 + number} for row in made]
        everything = set(range(self.histories))
        images = [image for row in made for image in (row["before"], row["after"]) if image is not None]
        self.changed.append(everything if any(r["__op"] == "t" for r in made) else {image["h"] for image in images})
        # Who touches what another one has touched, waits for its end.
        self.late -= {each for each in self.late if self.changed[each] & self.changed[number]}
        if self.chance.random() < 0.5:
            self.late.add(number)
        # A row's values are replaced and never changed in place.
        held: dict[int, list[dict[str, Any]]] = {h: [] for h in self.changed[number]}
        for row in self.table.rows:
            if row["h"] in held:
                held[row["h"]].append(dict(row))
        self.after.append(held)

    def end_some(self) -> None:
        """Some transactions become visible."""
        self.late = {each for each in self.late if self.chance.random() < 0.6}

    def shown(self) -> list[dict[str, Any]]:
        """The rows that a snapshot taken now shows, by key."""
        rows = []
        for history in range(self.histories):
            seen = [n for n in range(len(self.lsns)) if history in self.changed[n] and n not in self.late]
            rows += self.after[seen[-1]][history] if seen else []
        return sorted(rows, key=key_of)

    def visible(self) -> str:
        """pg_current_snapshot()'s text now."""
        seen = [1000 + n for n in range(len(self.lsns)) if n not in self.late]
        xmax = max(seen, default=999) + 1
        running = sorted(1000 + n for n in self.late if 1000 + n < xmax)
        return f"{min(running, default=xmax)}:{xmax}:{','.join(map(str, running))}"

    @property
    def settled(self) -> int:
        """An LSN up to which a snapshot taken now shows everything."""
        first = min(self.late, default=len(self.lsns))
        return self.lsns[first - 1] if first else 0

    def between(self, low: int, high: int) -> pa.Table:
        """The changes that committed after ``low`` and by ``high``."""
        found = [row for row in self.changes if low < row["__commit_lsn"] <= high]
        return pa.Table.from_pylist(found, schema=change_schema(ROW))


class Lake:
    """A lake table that follows the stream and takes chunks."""

    def __init__(self, server: Server, chance: random.Random, size: int, mode: DeleteMode = DeleteMode.HARD) -> None:
        self.server, self.chance, self.size = server, chance, size
        self.schema = lake_schema(ROW, mode)
        self.how = chance.choice(HOWS)
        self.content = prepared(MemoryContent(self.schema), self.how)
        self.merged = server.lsns[-1] if server.lsns else 0
        rows = [self._as_lake_has_it(row) for row in server.table.rows if chance.random() < 0.5]
        if rows:
            self.content.add(as_live(pa.Table.from_pylist(rows, schema=HARD), mode))
        self.last: tuple[int, str] | None = None
        self.greatest: tuple[int, str] | None = None
        self.scanned = 0
        self.rest: dict[tuple[str, ...], None] = {}

    def begin(self) -> None:
        """The largest key is read."""
        shown = self.server.shown()
        self.greatest = key_of(shown[-1]) if shown else None
        self.scanned = self.server.settled

    def _as_lake_has_it(self, row: dict[str, Any]) -> dict[str, Any]:
        damaged = {"v": 77, "big": "damaged", "num": None, "__rescued": None} if self.chance.random() < 0.4 else {}
        # A row that another tool has written may stand at any position.
        return {**row, **damaged, "__commit_lsn": self.merged, "__tx_index": 10**6, "__commit_ts": AT}

    def merge(self, upto: int) -> None:
        while self.merged < upto:
            ends = [lsn for lsn in self.server.lsns if self.merged < lsn <= upto]
            if not ends:
                return
            cut = self.chance.choice(ends)
            rows = self.server.between(self.merged, cut)
            if rows.num_rows:
                changes = prepared_slice(rows, TABLE, self.schema)
                ways = ways_of(self.how, self.chance, self.content)
                self.content.commit(applied_slice(self.content, changes, rows, ways))
            self.merged = cut

    def _effect(self, changes: Changes) -> Rewrite:
        return apply(self.content, changes, ways=ways_of(self.how, self.chance, self.content))

    def read(self) -> tuple[ChunkRows, bool]:
        """The next rows, and whether there were none."""
        rows = self.server.shown()
        if self.last is not None:
            assert self.greatest is not None
            rows = [row for row in rows if self.last < key_of(row) <= self.greatest]
        rows = rows[: self.size]
        if rows:
            self.last = key_of(rows[-1])
        return self._chunk(rows), not rows

    def read_rest(self) -> ChunkRows:
        keys = list(self.rest)[: self.size]
        for key in keys:
            del self.rest[key]
        wanted = {(int(h), k) for h, k in keys}
        return self._chunk([row for row in self.server.shown() if key_of(row) in wanted])

    def _chunk(self, rows: list[dict[str, Any]]) -> ChunkRows:
        at = {"__commit_lsn": 0, "__tx_index": -1, "__commit_ts": AT}
        return ChunkRows(pa.Table.from_pylist([{**row, **at} for row in rows], schema=HARD), self.server.visible())

    def apply_chunks(self, chunks: list[ChunkRows]) -> None:
        changes = self.server.between(0, self.merged)
        found = chunk_states(chunks, changes, KEY, self.schema, self.merged).changes()
        if self.schema.equals(HARD):
            assert isinstance(found, KeyedChanges) and not found.reduced.keep, (
                "applying chunks needs nothing of the lake's"
            )
        self.content.commit(self._effect(found))
        late = changes.column("__commit_lsn").to_numpy() > self.scanned
        late |= hidden(changes, chunks[0].visible)
        moved = moved_unsent(changes.filter(pa.array(late)), KEY, self.schema)
        self.rest |= dict.fromkeys(key_texts(moved, KEY) or ())
        self.scanned = self.merged


def take_snapshot(server: Server, lake: Lake, chance: random.Random, statements: int) -> None:
    """Everything that goes on beside an incremental snapshot, in any order."""

    def goes_on() -> None:
        # A source that moves rows faster than chunks are read would keep the snapshot going.
        for _ in range(chance.randrange(3) if len(server.lsns) < MOST else 0):
            server.commit(chance.randint(1, statements))
        server.end_some()

    for _ in range(2):
        goes_on()
        lake.merge(chance.choice(server.lsns or [0]))
    lake.begin()
    is_over = lake.greatest is None
    for _ in range(MANY_ROUNDS):
        if is_over and not lake.rest:
            break
        chunks = []
        for _ in range(chance.randint(1, 3)):
            goes_on()
            if is_over and lake.rest:
                chunks.append(lake.read_rest())
            elif not is_over:
                chunk, is_over = lake.read()
                chunks.append(chunk)
            if is_over and not lake.rest:
                break
        reached = server.lsns[-1] if server.lsns else 0
        goes_on()
        lake.merge(chance.choice([lsn for lsn in server.lsns if lsn >= reached] or [0]))
        if chunks:
            lake.apply_chunks(chunks)
    else:
        pytest.fail("the snapshot did not end")
    goes_on()
    lake.merge(server.lsns[-1] if server.lsns else 0)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 10**6),
    histories=st.integers(1, 5),
    truncates=st.booleans(),
    start=st.integers(0, 15),
    statements=st.integers(1, 8),
    size=st.integers(1, 6),
    mode=st.sampled_from(DeleteMode),
)
# A row was moved by a transaction that is in the stream, and that the snapshot of the row's re-read does not show yet.
@example(seed=76609, histories=2, truncates=False, start=4, statements=4, size=4, mode=DeleteMode.HISTORY)
def test_the_lake_ends_as_the_source(
    seed: int, histories: int, truncates: bool, start: int, statements: int, size: int, mode: DeleteMode
) -> None:
    server, chance = Server(seed, histories, truncates), random.Random(seed + 2)
    if start:
        server.commit(start)
        server.late.clear()
    lake = Lake(server, chance, size, mode)
    take_snapshot(server, lake, chance, statements)
    assert plain([row for row in lake.content.rows if is_in_force(row)]) == plain(server.table.rows)


def is_in_force(row: dict[str, Any]) -> bool:
    return not row.get("__deleted", False) and row.get("__current", True)


@pytest.mark.parametrize("mode", DeleteMode)
def test_rows_that_are_as_they_were_begin_no_version(mode: DeleteMode) -> None:
    server, chance = Server(7, 3, truncates=False), random.Random(7)
    server.commit(15)
    server.late.clear()
    lake = Lake(server, chance, 100, mode)
    lake.content = MemoryContent(lake.schema)
    at = {"__commit_lsn": 1, "__tx_index": -1, "__commit_ts": AT}
    rows = [{**row, **at} for row in server.table.rows]
    lake.content.add(as_live(pa.Table.from_pylist(rows, schema=HARD), mode))
    lake.begin()
    lake.apply_chunks([lake.read()[0]])
    assert plain(lake.content.rows) == plain(rows) and rows
    if mode is DeleteMode.HISTORY:
        assert {row["__valid_from_lsn"] for row in lake.content.rows} == {1}


def test_keys_without_a_text_are_reported() -> None:
    keys = pa.table({"a": pa.array([1, 2]), "b": pa.array(["x", "y"])})
    assert key_texts(keys, ("b", "a")) == [("x", "1"), ("y", "2")]
    assert key_texts(pa.table({"a": pa.array([b"1"])}), ("a",)) is None
    assert key_texts(pa.table({"a": pa.array([None], pa.int64())}), ("a",)) is None


def lake_row(key: str, big: str, lsn: int = 5, index: int = -1) -> dict[str, Any]:
    values = {"h": 0, "k": key, "v": 1, "big": big, "num": None, "__rescued": None}
    return {**values, "__commit_lsn": lsn, "__tx_index": index, "__commit_ts": AT}


def applied(lake: list[dict[str, Any]], read: list[dict[str, Any]], changes: list[dict[str, Any]]) -> dict[str, Any]:
    """A lake at LSN 50 after a chunk whose snapshot shows transactions before 1000: key -> (big, LSN, index)."""
    content = MemoryContent(HARD)
    content.add(pa.Table.from_pylist(lake, schema=HARD))
    chunk = ChunkRows(pa.Table.from_pylist(read, schema=HARD), "1000:1000:")
    made = pa.Table.from_pylist(changes, schema=change_schema(ROW))
    content.commit(apply(content, chunk_states([chunk], made, KEY, HARD, 50).changes()))
    return {row["k"]: (row["big"], row["__commit_lsn"], row["__tx_index"]) for row in content.rows}


def image_of(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {name: row[name] for name in ("h", "k", "v", "big", "num", "__rescued")} | more


def test_a_row_that_was_read_replaces_the_lakes_at_any_position() -> None:
    found = applied([lake_row("a", "damaged", 10**9, 7), lake_row("z", "not read")], [lake_row("a", "read")], [])
    assert found == {"a": ("read", 50, -1), "z": ("not read", 5, -1)}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("mode", [DeleteMode.HARD, DeleteMode.SOFT])
def test_one_damaged_value_of_a_table_with_a_feed_is_found_and_nothing_else(mode: DeleteMode, how: str) -> None:
    """The row keeps the position of its last change, which therefore must not decide whether it is as it was."""
    rows = [lake_row(key, "B") | {"num": Decimal(1)} for key in "abcdef"]
    read = ChunkRows(pa.Table.from_pylist(rows, schema=HARD), "1000:1000:")
    damages: list[dict[str, Any]] = [{"v": 2}, {"v": None}, {"big": "b"}, {"big": "B "}, {"big": None}, {"num": None}]
    damages += [{"num": Decimal("1.0001")}, {"__rescued": [("num", "NaN")]}, {"__rescued": []}]
    for damage in [{}, *damages]:
        place = random.Random(str(damage)).randrange(len(rows))
        held = [row | damage if row is rows[place] else row for row in rows]
        lake = as_live(pa.Table.from_pylist(held, schema=HARD), mode)
        content = prepared(MemoryContent(lake.schema), how)
        content.add(lake)
        states = chunk_states([read], change_schema(ROW).empty_table(), KEY, lake.schema, 50)
        ways = ways_of(how, random.Random(str(damage)), content)
        done = apply(content, states.changes(leaves_equal=True), ways=ways)
        assert (done.inserted, done.updated, done.deleted) == (0, len(damage), 0), damage
        assert done.changes_nothing is (not damage)
        content.commit(done)
        assert plain(content.rows) == plain(rows), damage
        written = [row["k"] for row in content.rows if row["__commit_lsn"] == 50]
        assert written == ([rows[place]["k"]] if damage else []), damage


def test_changes_that_the_chunk_does_not_show_come_over_it_and_find_their_unsent_values_in_it() -> None:
    read = [lake_row("a", "read"), lake_row("b", "read"), lake_row("c", "read")]
    seen = change("u", 20, 0, None, image_of(read[0], big="older"), xid=999)
    later = change("u", 40, 3, None, image_of(read[1], v=7, big=None), ["big"], xid=1000)
    gone = change("d", 41, 0, image_of(read[2]), xid=1001)
    found = applied([lake_row("c", "stale")], read, [seen, later, gone])
    assert found == {"a": ("read", 50, -1), "b": ("read", 40, 3)}


def test_a_chunk_that_does_not_show_a_truncate_lands_nowhere() -> None:
    found = applied([lake_row("b", "since")], [lake_row("a", "read")], [change("t", 40, 0, xid=1000)])
    assert found == {"b": ("since", 5, -1)}
    found = applied([lake_row("b", "since")], [lake_row("a", "read")], [change("t", 40, 0, xid=999)])
    assert found == {"a": ("read", 50, -1), "b": ("since", 5, -1)}


def test_a_row_that_moved_is_left_to_the_stream_and_its_new_key_returned_if_not_sent_completely() -> None:
    read = [lake_row("a", "read"), lake_row("b", "read")]
    whole = change("u", 40, 0, image_of(read[0]), image_of(read[0], k="x"), xid=1000)
    bare = change("u", 41, 0, image_of(read[1]), image_of(read[1], k="y", big=None), ["big"], xid=1001)
    assert applied([lake_row("x", "sent"), lake_row("y", "lost")], read, [whole, bare]) == {
        "x": ("sent", 5, -1),
        "y": ("lost", 5, -1),
    }
    changes = pa.Table.from_pylist([whole, bare], schema=change_schema(ROW))
    assert key_texts(moved_unsent(changes, KEY, HARD), KEY) == [("0", "y")]
