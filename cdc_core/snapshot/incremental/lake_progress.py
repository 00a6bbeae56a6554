"""The stored state of the incremental snapshots into a lake, in addition to the queue."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from cdc_core.snapshot.incremental.progress import Key, Progress


@dataclass(frozen=True, slots=True)
class LakeProgress:
    """``progress``: the queue, and the key after which the next chunks begin.

    ``upto``: chunks up to this key may have been written already, and are read again up to it. ``ordinal`` counts the
    groups written. ``scanned``: changes of the current table up to this LSN have been searched for rows that moved to
    another key with unsent columns; ``rest`` are the keys found, to be read again, and ``again`` means that they were
    too many, or have no text, so that the entire table is read again; ``passes`` counts how often that happened.
    ``signal`` is the position (commit LSN, index in the transaction) of the last processed signal of the signal table.
    ``published`` is the digest of the tables' publication as a run found it, and ``bound`` a transaction id that none
    had at that time (``snapshot/unsent``). Everything refers to one ``epoch`` of the stream (``lake/epochs``).
    """

    progress: Progress = field(default_factory=Progress)
    upto: Key | None = None
    ordinal: int = 0
    scanned: int = 0
    rest: tuple[Key, ...] = ()
    again: bool = False
    passes: int = 0
    signal: tuple[int, int] = (0, -1)
    epoch: int = 0
    published: str = ""
    bound: int = 0

    def for_next_table(self, progress: Progress) -> LakeProgress:
        """Return the state at the start of a table."""
        return replace(self, progress=progress, upto=None, scanned=0, rest=(), again=False, passes=0)

    def to_json(self) -> str:
        """Return a text that ``from_json`` converts to an equal value."""
        raw = {
            "progress": self.progress.to_json(),
            "upto": self.upto,
            "ordinal": self.ordinal,
            "scanned": self.scanned,
            "rest": self.rest,
            "again": self.again,
            "passes": self.passes,
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
                None if raw["upto"] is None else tuple(raw["upto"]),
                int(raw["ordinal"]),
                int(raw["scanned"]),
                tuple(tuple(key) for key in raw["rest"]),
                bool(raw["again"]),
                int(raw["passes"]),
                (int(raw["signal"][0]), int(raw["signal"][1])),
                int(raw.get("epoch", 0)),
                str(raw.get("published", "")),
                int(raw.get("bound", 0)),
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError("not the progress of incremental snapshots into a lake") from error
