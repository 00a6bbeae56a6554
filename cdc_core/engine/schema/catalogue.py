"""The queries of the source by which its schema is followed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cdc_core.schema import Fingerprint, TableId, TableSchema


class Catalogue(Protocol):
    """The queries to the source (``cdc_core.postgres.catalog.tables.Catalog``)."""

    def current(self, name: TableId) -> TableSchema | None:
        """Return the table as it is now, with its fingerprint; None if it does not exist."""

    def fingerprints(self, oids: Iterable[int]) -> dict[int, Fingerprint]:
        """Return the fingerprints by oid."""

    def marks_stamp(self, oids: Iterable[int]) -> str:
        """Return a text that is another one once ``fingerprints`` returns others for the same tables."""

    def storage_stamp(self, oids: Iterable[int]) -> str:
        """Return a text that is another one once the tables' values may have changed without an event."""
