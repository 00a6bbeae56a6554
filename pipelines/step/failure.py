"""Errors of the engine as Dagster failures: only transient errors are retried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from cdc_core.errors import CdcError, TransientError

RETRIES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)


@contextmanager
def reported() -> Iterator[None]:
    """Convert an error of the engine to a Dagster failure with its message; only a TransientError is retried."""
    try:
        yield
    except CdcError as error:
        # The sentence is what a user needs; the engine's own stack, before it, would hide it.
        raise dg.Failure(
            description=str(error),
            metadata={"error": type(error).__name__},
            allow_retries=isinstance(error, TransientError),
        ) from None


@contextmanager
def retried(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Retry the step after an error, according to ``RETRIES``.

    It is not set as the step's retry policy, because Dagster applies a retry policy to interrupts too: a cancelled run
    would start again.
    """
    try:
        yield
    except (dg.DagsterError, dg.RetryRequested):
        raise
    except Exception as error:
        if isinstance(error, dg.Failure) and not error.allow_retries:
            raise
        attempt = context.op_execution_context.retry_number + 1
        raise dg.RetryRequested(RETRIES.max_retries, RETRIES.calculate_delay(attempt)) from error
