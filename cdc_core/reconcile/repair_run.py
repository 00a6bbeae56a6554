"""Repairs tables whose rows differ: the rows are written, and compared again under a later snapshot of the source.

    keys that differ ─▶ Repair writes their rows ─▶ the same keys are compared ─▶ those that differ again ─▶ …

Up to three attempts are made, because a run may commit meanwhile, and the source's rows may change. Which rows of a
table without a key are missing or too many is known for one version of the lake table only, so before each attempt all
of its rows are compared again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from cdc_core.errors import CdcError, CommitConflictError, NotComparableError
from cdc_core.lake import ChangelogCheck, Differences, DifferentRows, KeyedRepair, TableComparison
from cdc_core.postgres import ChunkConnection, Source
from cdc_core.reconcile.compare import ComparedSides, Comparisons
from cdc_core.reconcile.repair import RowsAgain
from cdc_core.reconcile.reports import TableResult, Unrepaired
from cdc_core.reconcile.view import SourceView
from cdc_core.schema import Key, TableSchema

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
_MERGED_MEANWHILE = "changes were merged while its rows were compared: repair it while no run streams"
_DIFFERED_AGAIN = "it differed again after it was written"
_TOO_MANY = "too many of its rows differ, so it has to be read whole: run wal2lake snapshot with it"


class RepairRun:
    """Repairs tables. ``bounds`` is a connection for what later snapshots show; rows are read by ``connection``.

    ``changelogs``: the check that the results before have, None if they have none.
    """

    def __init__(
        self,
        source: Source,
        bounds: ChunkConnection,
        comparisons: Comparisons,
        changelogs: ChangelogCheck | None,
        repair: KeyedRepair,
        connection: ChunkConnection,
    ) -> None:
        self._source = source
        self._bounds = bounds
        self._comparisons = comparisons
        self._changelogs = changelogs
        self._repair = repair
        self._connection = connection

    def repair(self, table: TableSchema, sides: ComparedSides) -> TableResult:
        """Write the rows of a table that differ; returns its result afterwards.

        An error is the reason why the rows that remain were not repaired.
        """
        result, judged = sides.result, sides.judged
        if not table.row_key:
            return self._without_key(table, result)
        if judged is None or judged.keys is None:
            return replace(result, unrepaired=(Unrepaired((), _TOO_MANY),)) if result.found.count else result
        return self._with_changelog(table, self._by_key(table, result, judged))

    def _by_key(self, table: TableSchema, result: TableResult, judged: DifferentRows) -> TableResult:
        """Write the rows of the keys that differ until none does, or nothing more can be written."""
        left, why = dict[Key, str](), _DIFFERED_AGAIN
        for _ in range(_ATTEMPTS):
            try:
                left, judged = self._written(table, judged)
            except CdcError as error:
                why = _reason(error)
                break
            if not judged.found.count or len(left) >= judged.found.count:
                break
        differences, limit = judged.found, self._comparisons.limit
        remaining = [*differences.missing.keys, *differences.extra.keys, *differences.changed.keys]
        unrepaired = tuple(Unrepaired(key, left.get(key, why)) for key in remaining[:limit])
        return _repaired(result, differences.cut(limit), unrepaired)

    def _written(self, table: TableSchema, judged: DifferentRows) -> tuple[dict[Key, str], DifferentRows]:
        """Return the keys that were not written, with the reasons, and what differs among the keys afterwards."""
        different = judged.keys
        if different is None:
            return {}, judged
        target = self._comparisons.records.target(table)
        rows = RowsAgain(self._connection, self._comparisons.slot, self._comparisons.plan.of(target))
        left = self._repair.write(target, rows, different)
        # All rows that still differ are reported, each with the reason from its attempt.
        naming_all = replace(self._comparisons, limit=judged.found.count)
        with SourceView.open(self._source, self._bounds) as view, naming_all.open(table, view) as comparison:
            return left, comparison.compare_keys(different.keys)

    def _without_key(self, table: TableSchema, result: TableResult) -> TableResult:
        """Compare the rows again, write those that differ, and compare them once more."""
        try:
            for _ in range(_ATTEMPTS):
                with self._opened(table) as comparison, suppress(CommitConflictError):
                    comparison.write_surplus(self._repair.slices)
                    break
            with self._opened(table) as comparison:
                differences = comparison.compare().found
        except CdcError as error:
            return replace(result, unrepaired=(Unrepaired((), _reason(error)),))
        return _repaired(result, differences, (Unrepaired((), _MERGED_MEANWHILE),) if differences.count else ())

    @contextmanager
    def _opened(self, table: TableSchema) -> Iterator[TableComparison]:
        """The comparison of all rows of a table under a new snapshot."""
        size = self._source.catalog.sizes([table]).get(table.id)
        with (
            SourceView.open(self._source, self._bounds) as view,
            self._comparisons.open(table, view, size) as comparison,
        ):
            yield comparison

    def _with_changelog(self, table: TableSchema, result: TableResult) -> TableResult:
        """Return the result with the state of its changelog after the repair."""
        if self._changelogs is None or result.changelog is None:
            return result
        try:
            again = self._changelogs.of(self._comparisons.records.target(table))
        except CdcError as error:
            _log.warning("The changelog of %s could not be checked after the repair: %s", table.id, error)
            return replace(result, changelog=None)
        return result if again is None else replace(result, changelog=again)


def _repaired(before: TableResult, found: Differences, unrepaired: tuple[Unrepaired, ...]) -> TableResult:
    """Return a table's result with the differences after its repair; rows that a rule refused are not repaired."""
    count = max(0, before.found.count - found.count - found.quarantined.count)
    return replace(before, state=found.state, found=found, repaired=count, unrepaired=unrepaired)


def _reason(error: CdcError) -> str:
    return error.message if isinstance(error, NotComparableError) else str(error)
