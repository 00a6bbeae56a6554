"""Compares tables of a connector with their source under one snapshot of it, one after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from cdc_core.errors import CdcError, NotComparableError
from cdc_core.lake import ChangelogCheck, DifferentRows, TableComparison
from cdc_core.postgres import Source, TableSize
from cdc_core.reconcile.compare import ComparedSides, Comparisons
from cdc_core.reconcile.partial import ComparedPart
from cdc_core.reconcile.read_plan import SAMPLE_ROWS
from cdc_core.reconcile.reports import left_out, result_of
from cdc_core.reconcile.view import SourceView
from cdc_core.schema import TableSchema, streamed
from cdc_core.snapshot import is_unaltered

_log = logging.getLogger(__name__)


class ReconcileRun:
    """Compares a ``part`` of each table. ``changelogs``: the check of their changelogs, None for none."""

    def __init__(
        self, source: Source, comparisons: Comparisons, part: ComparedPart, changelogs: ChangelogCheck | None
    ) -> None:
        self._source = source
        self._comparisons = comparisons
        self._part = part
        self._changelogs = changelogs

    def compare(self, tables: Sequence[TableSchema], view: SourceView) -> Iterator[ComparedSides]:
        """Yield the result of each table, in their order; an error that concerns one table is in its result."""
        sizes = self._source.catalog.sizes(tables)
        for table in tables:
            yield self._one(table, sizes.get(table.id), view)

    def _one(self, table: TableSchema, size: TableSize | None, view: SourceView) -> ComparedSides:
        began = time.monotonic()
        try:
            with self._comparisons.open(table, view, size) as comparison:
                judged = self._compared(comparison)
            sides = ComparedSides(result_of(comparison.target, judged, time.monotonic() - began), judged)
            if self._changelogs is not None:
                sides = replace(sides, result=replace(sides.result, changelog=self._changelogs.of(comparison.target)))
            self._check_unaltered(table)
            return sides
        except NotComparableError as error:
            return ComparedSides(left_out(table.id, error.message))
        except (pa.ArrowException, OSError) as error:
            _log.warning("%s could not be compared.", table.id, exc_info=error)
            doing = "read" if isinstance(error, OSError) else "converted"
            reason = f"its lake table has values that cannot be {doing} ({type(error).__name__})"
            return ComparedSides(left_out(table.id, reason, is_error=True))
        except CdcError as error:
            _log.debug("%s could not be compared: %s", table.id, error)
            return ComparedSides(left_out(table.id, f"it could not be compared: {error}", is_error=True))

    def _compared(self, comparison: TableComparison) -> DifferentRows:
        """Compare the configured part of a table."""
        part = self._part
        if part.sample is not None:
            return comparison.compare_sample(part.sample, SAMPLE_ROWS, part.seed)
        since = part.since.get(comparison.target.table.id)
        keys = None if since is None else comparison.keys_since(since)
        return comparison.compare() if keys is None else comparison.compare_keys(keys)

    def _check_unaltered(self, table: TableSchema) -> None:
        """Raise NotComparableError if the table was altered or truncated since it was described.

        The snapshot does not show the rows that such a statement rewrote or removed.
        """
        now = self._source.catalog.current(table.id)
        if now is None or not is_unaltered(table, streamed(now)):
            raise NotComparableError("it was altered or truncated while it was compared")
