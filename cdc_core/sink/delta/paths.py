"""The path of each Delta table of a connector."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_core.schema.table import TableId
from cdc_core.sink.delta.storage import Location, Storage


@dataclass(frozen=True, slots=True)
class LakePaths:
    """The paths under ``<root>/<prefix>``: lake tables directly, everything else in folders that begin with ``__``.

    ``root`` is a folder or any URI that Hadoop's file systems support; ``prefix`` is ``topic.prefix``, ``storage`` the
    settings to access the root.
    """

    root: str
    prefix: str
    storage: Storage = field(default_factory=Storage)

    @property
    def base(self) -> str:
        """``<root>/<prefix>``. S3 is s3a, as Hadoop requires; ``delta_uri`` converts it for delta-rs."""
        root = f"s3a://{self.root[len('s3://') :]}" if self.root.startswith("s3://") else self.root
        return f"{root.rstrip('/')}/{self.prefix}"

    def lake(self, table: TableId) -> str:
        """The lake table, equal to the source's."""
        return self._at(f"{table.schema}/{table.table}")

    def changelog(self, table: TableId) -> str:
        """Every change of the table."""
        return self._at(f"__changelog/{table.schema}/{table.table}")

    def quarantine(self, table: TableId) -> str:
        """Change rows that a quality rule refused, with their reasons."""
        return self._at(f"__quarantine/{table.schema}/{table.table}")

    @property
    def rounds(self) -> str:
        """The Delta version of each table that shows a given LSN of the source."""
        return self._at("__rounds")

    @property
    def stream(self) -> str:
        """What the stream is whose positions the lake holds (``stream_log``)."""
        return self._at("__stream")

    @property
    def snapshots(self) -> str:
        """The transactions that each snapshot shows."""
        return self._at("__snapshots")

    @property
    def ranges(self) -> str:
        """Ranges of tables that a snapshot in progress has read (``range_log``)."""
        return self._at("__ranges")

    @property
    def incremental(self) -> str:
        """The progress of incremental snapshots."""
        return self._at("__incremental")

    @property
    def shapes(self) -> str:
        """The versions of its source that each lake table has had."""
        return self._at("__shapes")

    @property
    def notifications(self) -> str:
        """Notifications of snapshots, if the channel ``sink`` is enabled."""
        return self._at("__notifications")

    def _at(self, place: str) -> str:
        return Location(f"{self.base}/{place}", self.storage)
