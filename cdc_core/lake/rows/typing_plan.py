"""Creates the RowTyper of a table version from the connector's options; picklable, because workers receive it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.schema import TableSchema
from cdc_core.selection import ROW_OPERATIONS, SKIPPED, SelectionOptions, plan_columns
from cdc_core.types import FailureHandlingMode, TypeOptions, resolve


@dataclass(frozen=True, slots=True)
class TypingPlan:
    """The options that determine which columns are captured, how they are masked, and what type each becomes."""

    types: TypeOptions
    selection: SelectionOptions
    failure: FailureHandlingMode = FailureHandlingMode.WARN

    def typer(self, table: TableSchema) -> RowTyper:
        """Return the RowTyper of one table version."""
        return _typer(self, table)

    def _made(self, table: TableSchema) -> RowTyper:
        plans = plan_columns(table, self.selection)
        codecs = tuple(resolve(column, self.types) for column in table.columns)
        return RowTyper(table, plans, codecs, self.failure)

    def treatments(self, table: TableSchema) -> dict[str, str]:
        """Return what becomes of the values of each column (``ColumnPlan.treatment``).

        ``SKIPPED``, which is no column's name, has the operations on rows that are left out.
        """
        skipped = "".join(sorted(ROW_OPERATIONS & set(self.selection.skipped_operations)))
        return {plan.name: plan.treatment for plan in plan_columns(table, self.selection)} | {SKIPPED: skipped}

    def has_masks(self, table: TableSchema) -> bool:
        """Whether some value of the table must be masked or removed before it may be written anywhere."""
        return any(plan.mapper is not None or not plan.included for plan in plan_columns(table, self.selection))


# To make one takes longer than to type a few rows.
@lru_cache(2_000)
def _typer(plan: TypingPlan, table: TableSchema) -> RowTyper:
    return plan._made(table)
