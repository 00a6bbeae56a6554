"""Another writer's commit got in first (an OPTIMIZE, a second process): try again, a few times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from delta.exceptions.base import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)

from cdc_core.errors import TransientError

Result = TypeVar("Result")

_ATTEMPTS = 4
_CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)


def on_conflict(run: Callable[[], Result]) -> Result:
    """Run it, again after a Delta commit conflict, four times at most. Raises TransientError when all conflicted."""
    for attempt in range(_ATTEMPTS):
        try:
            return run()
        except _CONFLICTS as conflict:
            if attempt == _ATTEMPTS - 1:
                raise TransientError(
                    f"Another writer's commits conflicted with ours {_ATTEMPTS} times ({type(conflict).__name__}).",
                    "See who else writes to this lake; only one wal2lake may.",
                ) from conflict
            time.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")
