"""Falls back to transactions that are read after their commit, where those in progress exceed what may be kept of them.

Nothing of a transaction in progress is visible or confirmed before its commit, and its rows have the same positions
whichever protocol version they come by (docs/decisions/0026). So the stream begins anew at what is durable, asks for
whole transactions, and the server keeps them on its own disk until they commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from cdc_core.assemble.context import RunContext
from cdc_core.engine import BatchReport, Hooks, StreamReport, Until
from cdc_core.errors import InProgressLimitError
from cdc_core.postgres import InProgress

_log = logging.getLogger(__name__)

Streaming = Callable[[RunContext, Until, Hooks], StreamReport]


def at_commit_if_too_large(stream: Streaming, context: RunContext, until: Until, hooks: Hooks) -> StreamReport:
    """Stream; after an InProgressLimitError once more, within the same limits, each transaction after its commit."""
    begun, before = time.monotonic(), _Counted(hooks.on_batch)
    try:
        return stream(context, until, replace(hooks, on_batch=before.note))
    except InProgressLimitError as error:
        _log.warning("%s Until this run ends, each transaction is read after its commit.", error.message)
    left = until.after(time.monotonic() - begun, before.events)
    done = stream(_reading_at_commit(context), left, hooks)
    return replace(
        done,
        batches=before.batches + done.batches,
        events=before.events + done.events,
        seconds=time.monotonic() - begun,
    )


def _reading_at_commit(context: RunContext) -> RunContext:
    postgres = replace(context.config.postgres, streaming_transactions=InProgress.OFF)
    return replace(context, config=replace(context.config, postgres=postgres))


@dataclass(slots=True)
class _Counted:
    """Passes reports of batches on, and counts them."""

    passed_to: Callable[[BatchReport], None] | None
    batches: int = 0
    events: int = 0

    def note(self, report: BatchReport) -> None:
        self.batches += 1
        self.events += sum(report.events.values())
        if self.passed_to is not None:
            self.passed_to(report)
