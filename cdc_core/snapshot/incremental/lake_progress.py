"""What is stored of the incremental snapshots into a lake, beside the queue."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from cdc_core.snapshot.incremental.progress import Key, Progress


@dataclass(frozen=True, slots=True)
class LakeProgress:
    """``progress``: the queue, and the key behind which the next chunks begin.

    ``upto``: chunks up to this key may have landed already, and are re-read as far as that. ``ordinal`` counts the
    landings. ``scanned``: changes of the current table up to this LSN have been looked through for rows that moved to
    another key unsent; ``rest`` are the keys found, to be read once more, and ``again`` says that they were too many,
    or have no text, so that the whole table is read once more; ``passes`` counts how often that was so. ``signal`` is
    the place (commit LSN, index in the transaction) of the last signal of the signal table that was obeyed.
    """

    progress: Progress = field(default_factory=Progress)
    upto: Key | None = None
    ordinal: int = 0
    scanned: int = 0
    rest: tuple[Key, ...] = ()
    again: bool = False
    passes: int = 0
    signal: tuple[int, int] = (0, -1)

    def for_next_table(self, progress: Progress) -> LakeProgress:
        """The state at a table's beginning."""
        return replace(self, progress=progress, upto=None, scanned=0, rest=(), again=False, passes=0)

    def to_json(self) -> str:
        """A text that ``from_json`` turns back into an equal value."""
        raw = {
            "progress": self.progress.to_json(),
            "upto": self.upto,
            "ordinal": self.ordinal,
            "scanned": self.scanned,
            "rest": self.rest,
            "again": self.again,
            "passes": self.passes,
            "signal": self.signal,
        }
        return json.dumps(raw, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LakeProgress:
        """The inverse of ``to_json``; of an empty text the beginning. Raises ValueError for another text."""
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
            )
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError("not the progress of incremental snapshots into a lake") from error
