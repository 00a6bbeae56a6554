"""Whether tables are as they were described before they were read."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres import Catalog
from cdc_core.schema import Fingerprint, TableSchema
from cdc_core.snapshot.copy.table_plan import TablePlan


def unaltered(catalog: Catalog, plans: Sequence[TablePlan]) -> list[TablePlan]:
    """Return the plans whose table was not changed by DDL since its description, before the snapshot.

    COPY uses the catalogue at its own start: a column renamed meanwhile would have another column's values, and rows
    that ALTER TABLE rewrote are not visible to an older snapshot at all. Raises SourceError or TransientError.
    """
    marks = catalog.fingerprints([plan.table.oid for plan in plans])
    return [
        plan
        for plan in plans
        if _is_as_described(plan.table, marks.get(plan.table.oid)) and _has_its_leaves(catalog, plan)
    ]


def _is_as_described(table: TableSchema, now: Fingerprint | None) -> bool:
    return table.fingerprint is None or (now is not None and table.fingerprint.is_unaltered(now))


def _has_its_leaves(catalog: Catalog, plan: TablePlan) -> bool:
    """Whether the leaves that are read still have the same names: the table's fingerprint does not include them."""
    if not plan.reads_leaves:
        return True
    described = plan.description
    now = catalog.leaves(described.table, is_filtered=bool(described.statements.row_filter))
    return [leaf.identity for leaf in now] == [leaf.identity for leaf in described.statements.leaves]
