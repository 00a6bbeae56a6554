"""Options of the records of events."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import option
from cdc_core.types import FailureHandlingMode


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """Options of records."""

    tombstones_on_delete: bool = option(
        "tombstones.on.delete",
        True,
        "Whether a delete event is followed by a tombstone: a record with the key and no value.",
    )
    provide_transaction_metadata: bool = option(
        "provide.transaction.metadata",
        False,
        "Whether BEGIN and END records are written (in the lake: the table __transactions) and events contain their "
        "position in the transaction.",
    )
    skip_messages_without_change: bool = option(
        "skip.messages.without.change",
        False,
        "Whether updates that change no captured column are skipped; requires REPLICA IDENTITY FULL.",
    )
    extended_headers_enabled: bool = option(
        "extended.headers.enabled", True, "Whether data records have the __debezium.context.* headers."
    )
    event_processing_failure_handling_mode: FailureHandlingMode = option(
        "event.processing.failure.handling.mode",
        FailureHandlingMode.FAIL,
        "How to handle an event that cannot be processed.",
    )
    event_converting_failure_handling_mode: FailureHandlingMode = option(
        "event.converting.failure.handling.mode",
        FailureHandlingMode.WARN,
        "How to handle a value that its converter cannot read; warn and skip set the field to null.",
    )
