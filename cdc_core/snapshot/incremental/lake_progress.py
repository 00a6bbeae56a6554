"""The stored state of the incremental snapshots into a lake, in addition to the queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

from cdc_core.schema import Key, TableId
from cdc_core.snapshot.incremental.progress import Progress

MAX_PASSES = 5
# With more keys to be read again than this, the table is read again as a whole.
MOST_MOVED = 20_000
_MOST_DISCARDED = 1_000


@dataclass(frozen=True, slots=True)
class Request:
    """How far the current table of the queue is read: the ranges ``done`` of the plan ``plan`` are in the lake table.

    ``since``: changes from this LSN on are searched for rows that moved (``Search``). ``rows`` are in the lake table,
    ``expected`` the server's estimate for all ranges. ``id`` is empty before its ranges are planned, which was at
    ``began`` (seconds since 1970).
    """

    id: str = ""
    plan: str = ""
    ranges: int = 0
    since: int = 0
    done: tuple[int, ...] = ()
    rows: int = 0
    expected: int | None = None
    began: float = 0.0

    def with_done(self, number: int, rows: int) -> Request:
        """Return the request after one of its ranges was written."""
        if number in self.done:
            return self
        return replace(self, done=tuple(sorted({*self.done, number})), rows=self.rows + rows)


@dataclass(frozen=True, slots=True)
class Search:
    """The search of one table's changes for rows that moved to another key with unsent columns.

    Changes after ``since`` up to ``upto`` have been searched. ``moved`` are keys found, to be read again; ``again``
    means that they were too many, or have no text, so that the entire table is read again; ``passes`` counts how often.
    ``writing``: the staged range that was being written last, and the ordinal of its first write: if it is still
    staged, it is written again under the same ordinals.
    """

    since: int
    upto: int
    moved: tuple[Key, ...] = ()
    again: bool = False
    passes: int = 0
    writing: tuple[str, int] = ("", 0)

    @property
    def may_begin_again(self) -> bool:
        """Whether the entire table may be read once more."""
        return self.passes < MAX_PASSES

    def begin(self, since: int) -> int:
        """The LSN after which changes are to be searched, for rows of which none was read before ``since``."""
        return self.upto if self.since <= since <= self.upto else min(since, self.upto)

    def searched(self, since: int, upto: int) -> Search:
        """Return the search after changes up to ``upto`` were searched, from ``begin(since)`` on."""
        is_continued = self.since <= since <= self.upto
        return replace(self, since=self.since if is_continued else min(since, self.since), upto=max(upto, self.upto))

    def with_moved(self, keys: Iterable[Key] | None, read: Iterable[Key]) -> Search:
        """Return the search after ``keys`` were found (None: they have no text), and ``read`` were read again."""
        if keys is None or self.again:
            return replace(self, moved=(), again=True)
        gone = set(read)
        left = tuple(dict.fromkeys([*(key for key in self.moved if key not in gone), *keys]))
        return replace(self, moved=(), again=True) if len(left) > MOST_MOVED else replace(self, moved=left)


@dataclass(frozen=True, slots=True)
class Discarded:
    """A staged range that was not written, and why."""

    request: str
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class LakeProgress:
    """``progress``: the queue. ``request``: how far its first table is read. ``searches`` are those of single tables.

    ``ordinal`` counts the writes. ``discarded`` are the last ranges that were not written.
    ``signal`` is the position (commit LSN, index in the transaction) of the last processed signal of the signal table.
    ``published`` is the digest of the tables' publication as a run found it, and ``bound`` a transaction id that none
    had at that time (``snapshot/unsent``). Everything refers to one ``epoch`` of the stream (``lake/epochs``).
    """

    progress: Progress = field(default_factory=Progress)
    request: Request = Request()
    ordinal: int = 0
    searches: Mapping[TableId, Search] = field(default_factory=lambda: MappingProxyType({}))
    discarded: tuple[Discarded, ...] = ()
    signal: tuple[int, int] = (0, -1)
    epoch: int = 0
    published: str = ""
    bound: int = 0

    def for_next_table(self, progress: Progress) -> LakeProgress:
        """Return the state at the start of a table."""
        return replace(self, progress=progress, request=Request())

    def with_search(self, table: TableId, search: Search | None) -> LakeProgress:
        """Return the state with another search of a table; None removes it."""
        left = {name: kept for name, kept in self.searches.items() if name != table}
        return replace(self, searches=left if search is None else {**left, table: search})

    def discarding(self, ranges: Iterable[Discarded]) -> LakeProgress:
        """Return the state after ranges were discarded."""
        return replace(self, discarded=(*self.discarded, *ranges)[-_MOST_DISCARDED:])

    def to_json(self) -> str:
        """Return a text that ``from_json`` converts to an equal value."""
        raw = {
            "progress": self.progress.to_json(),
            "request": asdict(self.request),
            "ordinal": self.ordinal,
            "searches": [[*table, asdict(search)] for table, search in self.searches.items()],
            "discarded": [asdict(discarded) for discarded in self.discarded],
            "signal": self.signal,
            "epoch": self.epoch,
            "published": self.published,
            "bound": self.bound,
        }
        return json.dumps(raw, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LakeProgress:
        """The inverse of ``to_json``; the initial state for an empty text. Raises ValueError for another text."""
        if not text:
            return cls()
        try:
            raw = json.loads(text)
            return cls(
                Progress.from_json(raw["progress"]),
                Request(**{**raw["request"], "done": tuple(raw["request"]["done"])}),
                int(raw["ordinal"]),
                {TableId(schema, table): _search(search) for schema, table, search in raw["searches"]},
                tuple(Discarded(**discarded) for discarded in raw["discarded"]),
                (int(raw["signal"][0]), int(raw["signal"][1])),
                int(raw["epoch"]),
                str(raw["published"]),
                int(raw["bound"]),
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError("not the progress of incremental snapshots into a lake") from error


def _search(raw: Mapping[str, Any]) -> Search:
    moved = tuple(tuple(key) for key in raw["moved"])
    return Search(**{**raw, "moved": moved, "writing": (raw["writing"][0], raw["writing"][1])})
