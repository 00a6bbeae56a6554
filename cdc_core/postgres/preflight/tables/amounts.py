"""Reports columns in which amounts of money are part of a text: in hundredths, whatever decimals the currency has."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, doubtful
from cdc_core.schema import PgType, TypeKind
from cdc_core.selection import plan_columns

NAME = "amounts of money"
_HUNDREDTHS = 2


def check(context: Context) -> list[Finding]:
    """Run the check; no finding where the database's money has two decimals."""
    columns = [
        f"{table.id}.{column.name}"
        for table in context.tables
        for column, plan in zip(table.columns, plan_columns(table, context.selection), strict=True)
        if plan.included and _shows_amounts(column.type)
    ]
    if not columns:
        return []
    return [
        doubtful(
            NAME,
            f"Money is part of a range or composite type in {listed(columns)}: the lake has its text, in which amounts "
            "are hundredths, while by lc_monetary of the database money has another number of decimals.",
            "Read 12.34 in these texts as 1234 of the currency's smallest unit, use numeric in place of money, or list "
            "the columns in column.exclude.list.",
        )
    ]


def _shows_amounts(kind: PgType) -> bool:
    while kind.kind in (TypeKind.DOMAIN, TypeKind.ARRAY) and kind.inner is not None:
        kind = kind.inner
    is_text = kind.kind in (TypeKind.RANGE, TypeKind.MULTIRANGE, TypeKind.COMPOSITE)
    return is_text and kind.money_scale not in (None, _HUNDREDTHS)
