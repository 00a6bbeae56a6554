"""Which tables are the stream's own: their names, columns and folders. Definitions import it, without delta-rs."""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa

from cdc_core.lake.names import META
from cdc_core.lake.paths import LakePaths
from cdc_core.schema import TableId

_COUNTS = pa.list_(pa.struct([("data_collection", pa.string()), ("event_count", pa.int64())]))


class StreamTable(StrEnum):
    """A table of the stream's own."""

    MESSAGES = "messages"
    TRANSACTIONS = "transactions"

    @property
    def id(self) -> TableId:
        """Its name where those of captured tables are: no schema has an empty name."""
        return TableId("", f"__{self}")

    @property
    def schema(self) -> pa.Schema:
        """The columns of rows that are to be appended."""
        return _SCHEMAS[self]

    def path(self, paths: LakePaths) -> str:
        """Its folder."""
        return paths.messages if self is StreamTable.MESSAGES else paths.transactions


_SCHEMAS = {
    StreamTable.MESSAGES: pa.schema(
        [
            ("prefix", pa.string()),
            ("content", pa.binary()),
            ("transactional", pa.bool_()),
            ("__lsn", pa.int64()),
            ("__xid", pa.int64()),
            *META,
        ]
    ),
    StreamTable.TRANSACTIONS: pa.schema(
        [
            ("id", pa.string()),
            ("status", pa.string()),
            ("event_count", pa.int64()),
            ("data_collections", _COUNTS),
            ("__xid", pa.int64()),
            *META,
        ]
    ),
}
