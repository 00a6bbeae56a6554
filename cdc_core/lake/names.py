"""Names of the columns that wal2lake adds to the source's, in lake tables, changelogs and while rows are merged."""

from __future__ import annotations

import pyarrow as pa

from cdc_core.lake.delete_columns import NAMES

RESCUED = "__rescued"
META = (
    pa.field("__commit_lsn", pa.int64()),
    pa.field("__tx_index", pa.int64()),
    pa.field("__commit_ts", pa.timestamp("us", tz="UTC")),
)
OWN_NAMES = frozenset(each.name for each in META) | NAMES
"""The metadata columns of lake tables of all delete modes, which the image of a row does not have."""
EPOCH = "__epoch"
"""The epoch of a change, in changelogs of a second or later epoch (``lake/epochs``)."""

# Longer than PostgreSQL's longest identifier (63 bytes), so no column of a source table has such a name.
HELPER_LENGTH = 64


def helper(name: str) -> str:
    """Return the name of a column that exists only while rows are merged.

    This is ``name`` extended with underscores, so that it never equals the name of a source column.
    """
    return name.ljust(HELPER_LENGTH, "_")
