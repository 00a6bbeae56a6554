"""Judges a lake table as it is: a preview of a rule, and the check of a lake table in Dagster. Nothing is merged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from cdc_core.lake.checks.table_checks import TableChecks, results_of
from cdc_core.lake.delete_columns import CURRENT, DELETED, POSITION, is_live
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.stores.snapshot_events import as_reads
from cdc_core.quality import CheckReport, Severity
from cdc_core.schema import TableSchema

_RESCUED = "__rescued"
# Each batch has a fixed cost in DuckDB and Arrow.
_AT_ONCE = 65_536


def judge_lake_table(checks: TableChecks, table: TableSchema, lake: DeltaTable) -> CheckReport:
    """Have the rules of ``table`` judge all rows of its lake table that the source has: not deleted, current ones.

    Rules on the form and the order of changes do not apply. Raises NotJudgedError if a rule cannot be evaluated.
    """
    from cdc_core.quality import columns_read, judge_whole  # loads DuckDB

    name, rules = str(table.id), checks.rules_on_rows(table, lake.schema.names)
    columns = columns_read(name, rules, as_reads(lake.schema.empty_table()).schema)
    read = _Rows(lake, _columns(lake, columns))
    verdicts = judge_whole(name, rules, as_reads(read.schema.empty_table()).schema, read)
    success = all(verdict.success or verdict.rule.severity is not Severity.ERROR for verdict in verdicts)
    return CheckReport(table.id, read.rows, 0, success, results_of(verdicts))


def _columns(lake: DeltaTable, columns: set[str] | None) -> list[str]:
    own = (*POSITION, DELETED, CURRENT, _RESCUED)
    return [name for name in lake.schema.names if columns is None or name in columns or name in own]


class _Rows:
    """The rows of a lake table as change rows, read again by each call; ``rows`` counts those of the last."""

    def __init__(self, lake: DeltaTable, columns: Sequence[str]) -> None:
        self._lake = lake
        self._columns = columns
        self.rows = 0
        self.schema = pa.schema([lake.schema.field(name) for name in columns])

    def __call__(self) -> Iterator[pa.Table]:
        self.rows = 0
        for file in self._lake.files:
            if file.is_history:  # only ended versions
                continue
            for rows in self._lake.batches(file, self._columns, _AT_ONCE):
                live = is_live(rows)
                shown = rows if live.all() else rows.filter(pa.array(live))
                self.rows += shown.num_rows
                yield as_reads(shown.combine_chunks())
