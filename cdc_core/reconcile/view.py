"""One snapshot of the source, which tables are compared with: what it shows, and the connection that reads under it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from cdc_core.lake import ShownBySource
from cdc_core.postgres import ChunkConnection, ConnectionString, OpenSnapshot, SnapshotReader, Source, connection_string


class SourceView:
    """An open snapshot. ``target`` is how the server is reached by the connection that reads rows. For one thread."""

    def __init__(self, opened: OpenSnapshot, shown: ShownBySource, target: ConnectionString) -> None:
        self.shown = shown
        self.taken_us = opened.holder.facts.timestamp_us
        self._name = opened.holder.name
        self._target = target
        self._reader: SnapshotReader | None = None

    @classmethod
    @contextmanager
    def open(cls, source: Source, bounds: ChunkConnection) -> Iterator[SourceView]:
        """Take a snapshot; it is closed at the end of the context. Raises SourceError or TransientError."""
        bound = bounds.bound()
        with closing(source.open_concurrent_snapshot()) as opened:
            facts = opened.holder.facts
            view = cls(opened, ShownBySource.of(facts.visible, facts.lsn, bound), connection_string(source.options))
            try:
                yield view
            finally:
                view._close_reader()

    @contextmanager
    def reader(self) -> Iterator[SnapshotReader]:
        """The connection for one table's rows: the same for all of them, but another one after an error."""
        self._reader = self._reader or SnapshotReader(self._target, self._name)
        try:
            yield self._reader
        except BaseException:
            self._close_reader()
            raise

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
