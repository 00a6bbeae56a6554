"""Named points at which tests kill a process. Armed with ``WAL2LAKE_FAILPOINT=<name>[:<hit number>[:stop]]``.

An armed failpoint ends the run's process immediately with SIGKILL, like a power failure: no handler runs, nothing is
flushed. If reached in a worker, it ends the run's process and the worker; Spark's Java process then ends by itself.
With ``stop`` the process that reaches it is stopped instead, by SIGSTOP, until it is continued: a writer that may
outlast its run. Hits are counted in each process, or in all of a run together, by the size of the file that
``WAL2LAKE_FAILPOINT_HITS`` names: which worker gets a task is not certain. If unarmed, ``hit`` is one dictionary lookup
per durable step (never per row).
"""

from __future__ import annotations

import os
import signal
from typing import NamedTuple

AFTER_SPOOL = "after-spool"
BETWEEN_APPENDS = "between-appends"
BEFORE_CONFIRM = "before-confirm"
AFTER_CONFIRM = "after-confirm"
AFTER_CONFIRM_RECORD = "after-confirm-record"
DURING_MERGE = "during-merge"
AFTER_VECTORS = "after-vectors"
AFTER_CHANGES = "after-changes"
AFTER_SHARE = "after-share"
AFTER_TRUNCATE = "after-truncate"
BETWEEN_MERGES = "between-merges"
BEFORE_SNAPSHOT_COMMIT = "before-snapshot-commit"
AFTER_SNAPSHOT_COMMIT = "after-snapshot-commit"
AFTER_SNAPSHOT_RANGE = "after-snapshot-range"
AFTER_EPOCH_BEGUN = "after-epoch-begun"
AFTER_SLOT_CREATED = "after-slot-created"
AFTER_SLOT_RECORDED = "after-slot-recorded"
DURING_APPEND = "during-append"
AFTER_APPEND = "after-append"
AFTER_QUARANTINE = "after-quarantine"
AFTER_APPLY = "after-apply"
DURING_COMPACTION = "during-compaction"
AFTER_COMPACTION = "after-compaction"
DURING_INDEX = "during-index"
DURING_ROW_COPY = "during-row-copy"
BEFORE_ROUND_RECORD = "before-round-record"
DURING_EVOLUTION = "during-evolution"
AFTER_EVOLUTION = "after-evolution"
BEFORE_SURPLUS = "before-surplus"
AFTER_SIGNAL = "after-signal"
BEFORE_STAGING = "before-staging"
AFTER_STAGING = "after-staging"
BEFORE_CHUNK_APPLY = "before-chunk-apply"
DURING_CHUNK_APPLY = "during-chunk-apply"
AFTER_CHUNK_APPLY = "after-chunk-apply"
BEFORE_UNSTAGING = "before-unstaging"
AFTER_BLOCKING = "after-blocking"

ALL = (
    AFTER_SPOOL,
    BETWEEN_APPENDS,
    BEFORE_CONFIRM,
    AFTER_CONFIRM,
    AFTER_CONFIRM_RECORD,
    DURING_MERGE,
    AFTER_VECTORS,
    AFTER_CHANGES,
    AFTER_SHARE,
    AFTER_TRUNCATE,
    BETWEEN_MERGES,
    BEFORE_SNAPSHOT_COMMIT,
    AFTER_SNAPSHOT_COMMIT,
    AFTER_SNAPSHOT_RANGE,
    AFTER_EPOCH_BEGUN,
    AFTER_SLOT_CREATED,
    AFTER_SLOT_RECORDED,
    DURING_APPEND,
    AFTER_APPEND,
    AFTER_QUARANTINE,
    AFTER_APPLY,
    DURING_COMPACTION,
    AFTER_COMPACTION,
    DURING_INDEX,
    DURING_ROW_COPY,
    BEFORE_ROUND_RECORD,
    DURING_EVOLUTION,
    AFTER_EVOLUTION,
    BEFORE_SURPLUS,
    AFTER_SIGNAL,
    BEFORE_STAGING,
    AFTER_STAGING,
    BEFORE_CHUNK_APPLY,
    DURING_CHUNK_APPLY,
    AFTER_CHUNK_APPLY,
    BEFORE_UNSTAGING,
    AFTER_BLOCKING,
)

_hits: dict[str, int] = {}
_adopted: list[Armed] = []


class Armed(NamedTuple):
    """What a test armed, and the process to be killed: the run's own, wherever the failpoint is reached."""

    text: str
    process: int
    hits: str = ""


def armed() -> Armed | None:
    """Return what is armed in this process, for a worker to adopt; None for nothing."""
    text = os.environ.get("WAL2LAKE_FAILPOINT")
    return Armed(text, os.getpid(), os.environ.get("WAL2LAKE_FAILPOINT_HITS", "")) if text else None


def adopt(carried: Armed | None) -> None:
    """In a worker: adopt what is armed in the run that started its task."""
    if _adopted != ([carried] if carried else []):
        _hits.clear()
    _adopted[:] = [carried] if carried else []


def hit(name: str) -> None:
    """Record that the process reached ``name``; kill the run here if a test armed this failpoint."""
    failpoint = _adopted[0] if _adopted else armed()
    if failpoint is None:
        return
    name_armed, number, how = (*failpoint.text.split(":"), "", "")[:3]
    if name_armed != name:
        return
    if _counted(name, failpoint.hits) >= int(number or 1):
        if how == "stop":
            if os.getpgrp() != os.getpid():
                os.setsid()  # otherwise the end of the processes that started it would continue it, and end it too
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        os.kill(failpoint.process, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _counted(name: str, hits: str) -> int:
    """Count a hit, of this process or in the file ``hits``; return how many there are with it."""
    if not hits:
        _hits[name] = _hits.get(name, 0) + 1
        return _hits[name]
    with open(hits, "ab", buffering=0) as file:
        file.write(b".")
        return os.fstat(file.fileno()).st_size
