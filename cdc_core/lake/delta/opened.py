"""Delta tables that a worker keeps open across rounds: loading a log again would take most of a round's time.

A table is kept for one run of the engine, identified by its id: a later run in the same worker opens everything again,
because a table may have been removed and created again in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.errors import LakeError
from cdc_core.lake.delta.table import DeltaTable

_kept: dict[str, DeltaTable] = {}
_run: list[str] = [""]


def opened(run: str, path: str, storage: Mapping[str, str] | None = None) -> DeltaTable | None:
    """Return the table at ``path`` at its newest version; None if it does not exist."""
    if _run[0] != run:
        _kept.clear()
        _run[0] = run
    table = _kept.get(path)
    if table is not None:
        try:
            table.refresh()
        except LakeError:
            _kept.pop(path)
        else:
            return table
    found = DeltaTable.open(path, storage)
    if found is not None:
        _kept[path] = found
    return found


def keep(run: str, table: DeltaTable) -> DeltaTable:
    """Keep a table that was just created."""
    if _run[0] == run:
        _kept[table.path] = table
    return table
