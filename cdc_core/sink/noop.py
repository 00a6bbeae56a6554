"""The sink noop: change rows are decoded and typed on the workers, then discarded. It measures, and proves a source."""

from __future__ import annotations

from typing import Any, Protocol


class _Frame(Protocol):
    # Spark's DataFrame as far as this file needs it; only cdc_core/spark and sink/delta import Spark itself.
    @property
    def write(self) -> Any: ...


def discard(rows: _Frame) -> None:
    """Compute every row and column of ``rows`` and keep nothing."""
    rows.write.format("noop").mode("overwrite").save()
