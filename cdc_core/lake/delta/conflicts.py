"""Repeats what another writer's commit made impossible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from cdc_core.errors import CommitConflictError, MissingRowsError, TransientError, UnreadableError

Result = TypeVar("Result")

_ATTEMPTS = 8


class Refreshed(Protocol):
    """A table at a version, which ``refresh`` replaces by the newest."""

    @property
    def version(self) -> int:
        """The version."""

    def refresh(self) -> None:
        """Load the newest version."""


def on_conflict(attempt: Callable[[], Result], *tables: Refreshed) -> Result:
    """Run ``attempt``; after a conflict with another commit, refresh the tables and repeat it.

    So also after a file could not be read or rows were absent, if the tables have newer versions.

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
        except (UnreadableError, MissingRowsError):
            # The version was only expected to be the newest (``opened_to_commit``): its files may be removed since, and
            # rows that another worker has written are not in it.
            if not left or not any(_has_newer(table) for table in tables):
                raise
    raise AssertionError("unreachable")


def _has_newer(table: Refreshed) -> bool:
    before = table.version
    table.refresh()
    return table.version != before
