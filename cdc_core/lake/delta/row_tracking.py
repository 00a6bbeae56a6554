"""Row tracking: each row has an id that it keeps, and the version of the commit that last wrote it.

A row's id is the base id of its file plus its position in it, and its version that of the commit that added the file,
unless columns of the file say otherwise: those have the values of rows that were moved or updated. They are not part of
the table's schema; the table's properties name them. Specification: Delta's protocol document, "Row Tracking".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.lake.delta.data_file import DataFile

DOMAIN = "delta.rowTracking"
_HIGHEST = "rowIdHighWaterMark"
NO_ROW_ID = -1
"""The highest row id of a table that has none."""


def columns(names: Sequence[str]) -> list[pa.Field]:
    """Return the columns of files that have row ids and commit versions, by their names in the table's properties."""
    return [pa.field(name, pa.int64()) for name in names]


def filled(rows: pa.Table, file: DataFile, places: np.ndarray, names: Sequence[str]) -> pa.Table:
    """Return rows with the ids and versions that follow from their file, where its columns have none.

    ``names``: of row ids and of commit versions, of which ``rows`` may lack some. Rows of a file that no commit has
    added have no other ids than those in its columns. Shape: rows[N], places int64[N] -> rows[N]
    """
    if file.base_row_id is None or file.commit_version is None:
        return rows
    defaults = pa.array(file.base_row_id + places), pa.scalar(file.commit_version, pa.int64())
    for name, default in zip(names, defaults, strict=True):
        at = rows.schema.get_field_index(name)
        if at >= 0:
            rows = rows.set_column(at, rows.schema.field(at), pc.coalesce(rows.column(at), default))
    return rows


def without_empty(rows: pa.Table, names: Sequence[str]) -> list[str]:
    """Return which of the columns of row ids and commit versions ``rows`` have, and not null in every row."""
    return [name for name in names if name in rows.schema.names and rows.column(name).null_count < rows.num_rows]


def numbered(files: Sequence[DataFile], highest: int, version: int) -> tuple[list[DataFile], int]:
    """Give files that no commit has added their row ids, above ``highest``; returns them and the highest one then."""
    made = []
    for file in files:
        is_new = file.base_row_id is None
        made.append(replace(file, base_row_id=highest + 1, commit_version=version) if is_new else file)
        highest += file.rows if is_new else 0
    return made, highest


def domain(highest: int) -> dict[str, Any]:
    """Return the log's ``domainMetadata`` with the highest row id of a table."""
    return {"domain": DOMAIN, "configuration": json.dumps({_HIGHEST: highest}), "removed": False}


def highest_in(told: dict[str, Any]) -> int:
    """Return the highest row id in the log's ``domainMetadata``."""
    return NO_ROW_ID if told.get("removed") else int(json.loads(told["configuration"])[_HIGHEST])
