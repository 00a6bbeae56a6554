"""The rows of the stream's own tables in the lake: logical messages and transaction metadata."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_core.assemble.context import RunContext
from cdc_core.engine import OwnRows
from cdc_core.postgres import Source
from cdc_core.selection import MessageSelection
from cdc_core.types import FailureHandlingMode

if TYPE_CHECKING:
    from cdc_core.events import SegmentCounter


def own_rows(context: RunContext, source: Source) -> OwnRows:
    """What makes the rows of the stream's own tables: messages, and transaction metadata if it is asked for."""
    config = context.config
    wants_message = MessageSelection(config.selection).includes
    if not config.envelope.provide_transaction_metadata:
        return OwnRows(wants_message, None)
    return OwnRows(wants_message, _counter(context, source, wants_message).marks)


def _counter(context: RunContext, source: Source, wants_message: Callable[[str], bool]) -> SegmentCounter:
    """Counts events as they would be written, so this loads what makes them."""
    from cdc_core.assemble.events import envelope_context
    from cdc_core.events import SegmentCounter, TableRows

    config = context.config
    # A value that cannot be converted concerns its lake table; here it changes no number.
    options = replace(config.envelope, event_converting_failure_handling_mode=FailureHandlingMode.SKIP)
    records = replace(envelope_context(context, None), options=options)
    tables = TableRows(source.options, records, config.types, config.selection, config.snapshot)
    counter = SegmentCounter(tables.change_events, wants_message, counts_truncates="t" not in records.skipped)
    part = None if context.lake.adoption is None else context.lake.adoption.delivered.part
    if part is not None and part.counts is not None:
        counter.go_on(part.commit_lsn, dict(part.counts))
    return counter
