"""Delta tables that a worker keeps open across rounds: loading a log again would take most of a round's time.

A table is kept for one run of the engine (``worker_memory``): a later run in the same worker opens everything again,
because a table may have been removed and created again in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdc_core.errors import LakeError
from cdc_core.lake.delta.shared_log import SharedLog
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.worker_memory import MEMORY

_kept: dict[str, DeltaTable] = MEMORY.part()


def opened(run: str, path: str, storage: Mapping[str, str] | None = None) -> DeltaTable | None:
    """Return the table at ``path`` at its newest version; None if it does not exist."""
    return _opened(run, path, storage, DeltaTable.refresh)


def opened_to_commit(run: str, path: str) -> DeltaTable | None:
    """As ``opened``, for who commits to the table or does nothing (``DeltaTable.expect_newest``)."""
    return _opened(run, path, None, DeltaTable.expect_newest)


def _opened(
    run: str, path: str, storage: Mapping[str, str] | None, renew: Callable[[DeltaTable], None]
) -> DeltaTable | None:
    MEMORY.serve(run)
    table = _kept.get(path)
    if table is not None:
        try:
            renew(table)
        except LakeError:
            _kept.pop(path, None)
        else:
            return table
    new_table = DeltaTable.open(path, storage)
    return None if new_table is None else keep(run, new_table)


def keep(run: str, table: DeltaTable) -> DeltaTable:
    """Keep a table that was just opened or created."""
    if MEMORY.serves(run) and _kept.get(table.path) is not table:
        _kept[table.path] = table
        share(table, run)
    return table


def share(table: DeltaTable, run: str) -> None:
    """Let a table that was just opened or created share its commits with the workers of a run."""
    table.shared = SharedLog.of(table.path, table.identity, run)
    if table.shared is not None:
        table.shared.note_asked()
