"""Restarts a stream with another walsender, as often as that is necessary (``snapshot/sender_renewal``).

Nothing is lost: each start is at the durable position, as after a restart of the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from cdc_core.engine.reports import RENEWAL, StreamReport, Until
from cdc_core.engine.stream.run import Hooks
from cdc_core.postgres import LsnFlushMode, Source
from cdc_core.snapshot import SenderRenewal

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


def with_new_senders(stream: Callable[[Until, Hooks], StreamReport], until: Until, hooks: Hooks) -> StreamReport:
    """Stream within the limits, and again within those that are left while the report says RENEWAL."""
    begun = time.monotonic()
    report = stream(until, hooks)
    while report.stopped_by == RENEWAL:
        _log.warning(
            "The stream is begun anew at %s: this version of PostgreSQL may go by outdated entries of its catalogue "
            "until then.",
            report.lsn,
        )
        left = until.after(time.monotonic() - begun, report.events)
        more = stream(left, replace(hooks, on_start=None))
        report = replace(
            more,
            batches=report.batches + more.batches,
            events=report.events + more.events,
            rounds=(*report.rounds, *more.rounds),
            seconds=time.monotonic() - begun,
        )
    return report


def note_sender(renewal: SenderRenewal | None, source: Source, start: int, has_all: Callable[[], bool]) -> None:
    """Note that a walsender begins at ``start``. The first one of a run is replaced if it may be wrong without a sign.

    So it may be for tables that no run has read into a destination (``has_all``), and for events, which nothing is
    compared with. ``renewal`` is None if the server needs none.
    """
    if renewal is None:
        return
    if not renewal.has_begun and not has_all():
        renewal.covers(source.next_transaction())
    renewal.begin(start)


def needing_sender(renewal: SenderRenewal | None, source: Source) -> Callable[[int], bool]:
    """Return the function that determines whether the stream is to be begun anew at an LSN that was confirmed.

    A table that is added to the publication need not be in the stream at all, so the catalogue is looked at, too.
    """
    if renewal is None:
        return lambda confirmed: False
    # Positions that are only recorded are not those at which the slot begins again.
    is_sent = source.options.lsn_flush_mode is not LsnFlushMode.MANUAL
    if renewal.stamp is None:
        renewal.stamp = source.catalogue_stamp()
    looked_at = float("-inf")

    def is_due(confirmed: int) -> bool:
        nonlocal looked_at
        if time.monotonic() - looked_at >= _LOOK_SECONDS:
            stamp, looked_at = source.catalogue_stamp(), time.monotonic()
            if stamp != renewal.stamp:
                renewal.stamp = stamp
                renewal.covers(source.next_transaction())
        return renewal.is_due(source, confirmed if is_sent else source.slot().confirmed_lsn or 0)

    return is_due
