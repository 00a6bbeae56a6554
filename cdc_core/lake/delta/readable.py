"""Whether the folder of one captured table holds a Delta table that wal2lake wrote and that is complete."""

from __future__ import annotations

from cdc_core.errors import UnreadableError
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.log_text import unreadable_file
from cdc_core.lake.delta.table import DeltaTable

# Every lake table and changelog has it, and no table of another program.
_OWN = "__commit_lsn"


def open_own(path: str) -> DeltaTable | None:
    """Open a lake table or changelog; None if it does not exist. UnreadableError if it is not one, or is damaged."""
    table = DeltaTable.open(path)
    if table is not None and _OWN not in table.schema.names:
        raise UnreadableError(
            f"The folder {path} contains a Delta table that wal2lake did not write.",
            "Move it away: it is not changed.",
            path,
        )
    return table


def open_complete(path: str) -> DeltaTable | None:
    """As ``open_own``; also checks that the files of a local table exist."""
    table = open_own(path)
    if table is not None and "://" not in delta_uri(path):
        missing = table.missing_files()
        if missing:
            raise unreadable_file(path, missing[0])
    return table
