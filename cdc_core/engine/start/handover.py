"""What a start has claimed and proved, kept open for the stream of the same run.

A run takes the snapshot that is required, then streams, and keeps its claim in between: another connector would take
the slot or the lake's tables in that moment, and the run that has filled them would be the one that is refused.

Each operation begins with the same steps: it reads the captured tables, and compares the server, its history and the
slot with what the lake has recorded. Where the first one finds nothing to read and changes nothing, all of it still
holds a moment later, and the stream goes on with it. Otherwise the stream has the claim only, and looks at all of it
again.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from cdc_core.engine.start.continuity import Continuity
from cdc_core.engine.start.recorded_stream import RecordedStream
from cdc_core.postgres import Source
from cdc_core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Proved:
    """The captured ``tables``, and the stream that continues what the lake holds."""

    tables: list[TableSchema]
    proof: Continuity
    recorded: RecordedStream

    @property
    def goes_on(self) -> bool:
        """Whether the stream is one that the lake has recorded before, and nothing had to be accepted."""
        return not self.proof.is_new and self.proof.mismatch is None


class Handover:
    """Holds a claimed source until the next operation takes it; a context manager, which closes what is left."""

    def __init__(self) -> None:
        self._held: tuple[Source, Proved | None, ExitStack] | None = None

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, *exc: object) -> None:
        claim, self._held = self._held, None
        if claim is not None:
            claim[2].close()

    def give(self, source: Source, proved: Proved | None, closing: ExitStack) -> None:
        """Keep the claimed source, what was proved with it if that still holds, and what is to be closed after both."""
        self._held = source, proved, closing

    def take(self, closing: ExitStack) -> tuple[Source, Proved | None] | None:
        """Return what was given, which ``closing`` closes from now on.

        None if nothing was given, if it was taken before, or if the server has ended the connection, and so the claim.
        """
        claim, self._held = self._held, None
        if claim is None:
            return None
        source, proved, opened = claim
        if proved is None and not source.renew():
            opened.close()
            return None
        closing.enter_context(opened)
        return source, proved
