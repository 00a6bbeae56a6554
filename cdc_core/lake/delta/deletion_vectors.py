"""Deletion vectors: marks of deleted rows in data files, written by Delta on Spark.

In Delta's log a file with a deletion vector is another file than the same one without it: an action that removes it
must name the vector. delta-rs names it if a commit replaces the entire content, but not if it removes single files.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def kept_rows(raw: Any) -> dict[str, pa.Array]:
    """Return, by file name, a mask of the rows not marked as deleted, for files with a deletion vector."""
    found = pa.table(raw.deletion_vectors())
    # row-wise: one row per file
    names = [file_name(path) for path in found.column("filepath").to_pylist()]
    kept = found.column("selection_vector").combine_chunks()
    return {name: kept[number].values for number, name in enumerate(names)}


def marked_rows(raw: Any) -> int:
    """Return the number of rows marked as deleted, which the statistics of files include."""
    kept = pa.table(raw.deletion_vectors()).column("selection_vector").combine_chunks().flatten()
    return len(kept) - int(pc.sum(kept).as_py() or 0)


def file_name(path: str) -> str:
    """Return a data file's name without its folder."""
    return path.rpartition("/")[2]
