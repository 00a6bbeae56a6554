"""Errors of the engine as Dagster failures: tried again only where that may help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from cdc_core.errors import CdcError, TransientError

RETRIES = dg.RetryPolicy(max_retries=2, delay=10, backoff=dg.Backoff.EXPONENTIAL)


@contextmanager
def reported() -> Iterator[None]:
    """Let an error of the engine end the step with its own sentence; only a TransientError is tried again."""
    try:
        yield
    except CdcError as error:
        raise dg.Failure(
            description=str(error),
            metadata={"error": type(error).__name__},
            allow_retries=isinstance(error, TransientError),
        ) from error


@contextmanager
def retried(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Have the step tried again after an error, as ``RETRIES`` says.

    It is not given to Dagster as the step's policy, for Dagster applies a policy to interrupts too: a run that somebody
    cancels would start over.
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
