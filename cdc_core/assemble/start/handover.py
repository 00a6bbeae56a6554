"""What a start has claimed and proved, kept open for the stream of the same run.

A run takes the snapshot that is required, then streams. Each operation begins with the same steps: it claims the slot
and the lake, reads the captured tables, and compares the server, its history and the slot with what the lake has
recorded. Where the first one finds nothing to read and changes nothing, all of it still holds a moment later. So the
stream goes on with it, and the claim is not given up in between.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from cdc_core.assemble.start.continuity import Continuity
from cdc_core.assemble.start.recorded_stream import RecordedStream
from cdc_core.postgres.source import Source
from cdc_core.schema.table import TableSchema


@dataclass(frozen=True, slots=True)
class Proved:
    """The claimed ``source``, its captured ``tables``, and the stream that continues what the lake holds."""

    source: Source
    tables: list[TableSchema]
    proof: Continuity
    recorded: RecordedStream

    @property
    def goes_on(self) -> bool:
        """Whether the stream is one that the lake has recorded before, and nothing had to be accepted."""
        return not self.proof.is_new and self.proof.mismatch is None


class Handover:
    """Holds what an operation has proved until the next one takes it; a context manager, which closes what is left."""

    def __init__(self) -> None:
        self._held: tuple[Proved, ExitStack] | None = None

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, *exc: object) -> None:
        held, self._held = self._held, None
        if held is not None:
            held[1].close()

    def give(self, proved: Proved, closing: ExitStack) -> None:
        """Keep what was proved, and what is to be closed after it."""
        self._held = proved, closing

    def take(self, closing: ExitStack) -> Proved | None:
        """Return what was proved, which ``closing`` closes from now on; None if nothing was, or it was taken before."""
        held, self._held = self._held, None
        if held is None:
            return None
        closing.enter_context(held[1])
        return held[0]
