"""A chunk that was read, as a value: the files of its rows, and the snapshot that they show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkFile:
    """One chunk: the path of an Arrow file of lake rows, their number, its pg_snapshot's text, and its floor.

    ``floor`` is an LSN up to which the snapshot shows every commit. ``gone``: the path of an Arrow file of keys that
    were asked for and were not found, "" for none. ``place``: its place in a file of staged rows, None for one of its
    own.
    """

    path: str
    rows: int
    visible: str
    floor: int
    gone: str = ""
    place: int | None = None
