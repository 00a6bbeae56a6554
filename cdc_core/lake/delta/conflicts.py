"""Repeats what another writer's commit made impossible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cdc_core.errors import CommitConflictError, TransientError
from cdc_core.lake.delta.table import DeltaTable

Result = TypeVar("Result")

_ATTEMPTS = 8


def on_conflict(attempt: Callable[[], Result], *tables: DeltaTable) -> Result:
    """Run ``attempt``; after a conflict with another commit, refresh the tables and repeat it.

    Raises TransientError after eight conflicts.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            return attempt()
        except CommitConflictError:
            if not left:
                raise TransientError(
                    f"{_ATTEMPTS} commits conflicted with commits of another writer.",
                    "Check for other writers of this lake; only one run of wal2lake may write to it at a time.",
                ) from None
            for table in tables:
                table.refresh()
    raise AssertionError("unreachable")
