"""When a slice only adds files to its lake table, or replaces all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.reduce.repeated_inserts import has_repeated_keys
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.survey import Survey
from cdc_core.schema import TableSchema


def takes_files(lake: DeltaTable) -> bool:
    """Whether files with the rows resulting from inserts can simply be added to the table."""
    return mode_of(lake.schema.names) is not DeleteMode.SOFT


def keeps_rows(lake: DeltaTable) -> bool:
    """Whether the table keeps rows that the source no longer has (soft, history)."""
    return mode_of(lake.schema.names) is not DeleteMode.HARD


def adds_files(lake: DeltaTable, whole: Survey, *, has_key: bool, overlaps: bool) -> bool:
    """Whether a divided slice only adds files: inserts, or the entire content after a truncate.

    ``whole`` summarizes it; ``overlaps``: it may contain rows of the snapshot in force.
    """
    is_added = whole.only_inserts and not (has_key and overlaps)
    is_replaced = whole.truncated_at is not None and not keeps_rows(lake)
    return takes_files(lake) and (is_added or is_replaced)


def repeats_keys(checks: TableChecks, table: TableSchema, lake: DeltaTable, files: Sequence[DataFile]) -> bool:
    """Whether files of new rows contain one key twice, which a check of each file by itself does not find."""
    if not checks.has_unique_key(table):
        return False
    key = table.row_key
    key_schema = pa.schema([lake.schema.field(name) for name in KeyColumns.of(key, lake.schema).read])
    return has_repeated_keys([lake.read_as(file, key_schema) for file in files], key)
