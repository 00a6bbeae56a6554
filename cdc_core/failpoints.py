"""Named places where a crash is interesting. Tests arm one with ``WAL2LAKE_FAILPOINT=<name>[:<hit number>]``.

An armed failpoint ends the process at once with SIGKILL, as a power cut would: no handler runs, nothing is flushed.
Unarmed, ``hit`` is one dictionary look-up per durable step (never per row).
"""

from __future__ import annotations

import os
import signal

AFTER_SPOOL = "after-spool"
BETWEEN_APPENDS = "between-appends"
BEFORE_CONFIRM = "before-confirm"
AFTER_CONFIRM = "after-confirm"
DURING_MERGE = "during-merge"
BETWEEN_MERGES = "between-merges"
BEFORE_SNAPSHOT_COMMIT = "before-snapshot-commit"
AFTER_SNAPSHOT_COMMIT = "after-snapshot-commit"
AFTER_SLOT_CREATED = "after-slot-created"

ALL = (
    AFTER_SPOOL,
    BETWEEN_APPENDS,
    BEFORE_CONFIRM,
    AFTER_CONFIRM,
    DURING_MERGE,
    BETWEEN_MERGES,
    BEFORE_SNAPSHOT_COMMIT,
    AFTER_SNAPSHOT_COMMIT,
    AFTER_SLOT_CREATED,
)

_hits: dict[str, int] = {}


def hit(name: str) -> None:
    """Note that the process reached ``name``; end it here if a test armed that place."""
    armed = os.environ.get("WAL2LAKE_FAILPOINT")
    if not armed:
        return
    wanted, _, number = armed.partition(":")
    if wanted != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] >= int(number or 1):
        os.kill(os.getpid(), signal.SIGKILL)
