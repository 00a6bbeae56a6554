"""What the commands ``adopt`` and ``offsets`` return."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lsn import Lsn
from cdc_core.offsets.entries import file_of, key_json


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """``found`` and ``decided`` are sentences. ``is_new``: something was written, or with a dry run would be."""

    found: tuple[str, ...]
    decided: tuple[str, ...]
    is_new: bool


@dataclass(frozen=True, slots=True)
class HandBack:
    """The offset at which Debezium continues: Connect's key, the offset as JSON, and the steps to take."""

    connector: str
    server: str
    lsn: Lsn
    offset: str
    notes: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key, as JSON."""
        return key_json(self.connector, self.server)

    def file(self) -> bytes:
        """The file of FileOffsetBackingStore with this offset only."""
        return file_of(self.connector, self.server, self.offset)
