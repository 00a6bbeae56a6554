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
