"""A staged range: the rows read of a table, its description, and the LSN from which on they may be written."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cdc_core.lake import ChunkFile, StagedFile
from cdc_core.schema import Key, TableId, TableSchema
from cdc_core.snapshot.incremental.progress import Collection


@dataclass(frozen=True, slots=True)
class RangeToRead:
    """One range of a table's key, in a request: the rows after one key up to another (None: the table's ends).

    ``number`` counts from 1; 0 for rows of ``keys``, which are then all that is read. ``since``: changes after this LSN
    are searched for rows that moved to another key, so no row of the request was read before it.
    """

    request: str
    number: int
    collection: Collection
    since: int
    after: Key | None = None
    upto: Key | None = None
    keys: tuple[Key, ...] = ()

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.collection.table


@dataclass(frozen=True, slots=True)
class RangeFacts:
    """The range that was read, and ``table``, the description under which its rows were read.

    ``token`` is that of the lake table's snapshot when it was read, ``epoch`` the stream's: rows that were read before
    another snapshot are not written. ``reached`` is the end of the WAL after the last chunk. ``id`` names this reading.
    """

    id: str
    range: RangeToRead
    table: TableSchema
    token: int
    epoch: int
    reached: int = 0

    def to_json(self) -> str:
        """Return a text that ``from_json`` converts to an equal value."""
        to_read = self.range
        raw = {
            "id": self.id,
            "request": to_read.request,
            "number": to_read.number,
            "collection": [*to_read.table, to_read.collection.condition, to_read.collection.surrogate_key],
            "since": to_read.since,
            "after": to_read.after,
            "upto": to_read.upto,
            "keys": to_read.keys,
            "table": self.table.to_json(),
            "token": self.token,
            "epoch": self.epoch,
            "reached": self.reached,
        }
        return json.dumps(raw, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RangeFacts:
        """The inverse of ``to_json``."""
        raw = json.loads(text)
        schema, table, condition, surrogate = raw["collection"]
        to_read = RangeToRead(
            raw["request"],
            raw["number"],
            Collection(TableId(schema, table), condition, surrogate),
            raw["since"],
            None if raw["after"] is None else tuple(raw["after"]),
            None if raw["upto"] is None else tuple(raw["upto"]),
            tuple(tuple(key) for key in raw["keys"]),
        )
        described = TableSchema.from_json(raw["table"])
        return cls(raw["id"], to_read, described, raw["token"], raw["epoch"], raw["reached"])


@dataclass(frozen=True, slots=True)
class StagedRange:
    """A range that is staged: its facts, and the file with its rows."""

    facts: RangeFacts
    staged: StagedFile

    @classmethod
    def of(cls, staged: StagedFile) -> StagedRange:
        """Return what a staged file has."""
        return cls(RangeFacts.from_json(staged.facts), staged)

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.facts.range.table

    @property
    def name(self) -> tuple[str, int]:
        """The request and the number of the range: the same for all readings of it."""
        return self.facts.range.request, self.facts.range.number

    @property
    def floor(self) -> int:
        """An LSN up to which every chunk shows every commit, and changes have not to be searched."""
        return min([self.facts.range.since, *(chunk.floor for chunk in self.staged.chunks)])

    def slices(self, most: int) -> list[tuple[ChunkFile, ...]]:
        """Return the chunks in groups of at least ``most`` rows, each to be written in one commit; at least one group.

        The same groups each time: a range that is written again is written under the same ordinals.
        """
        path = self.staged.file.path
        groups: list[list[ChunkFile]] = [[]]
        rows = 0
        for chunk in self.staged.chunks:
            if rows >= most:
                groups, rows = [*groups, []], 0
            groups[-1].append(ChunkFile(path, chunk.rows, chunk.visible, chunk.floor, place=chunk.place))
            rows += chunk.rows
        return [tuple(group) for group in groups]
