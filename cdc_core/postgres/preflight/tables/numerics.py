"""Checks, on a sample of rows, whether the lake's decimals hold the values of numeric columns."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, doubtful
from cdc_core.postgres.rows.numeric_samples import REMEDY, sample_misfits

NAME = "numeric columns"


def check(context: Context) -> list[Finding]:
    """Run the check; no finding where every sampled value fits."""
    found = sample_misfits(context.connection, context.tables, context.selection)
    return [doubtful(NAME, str(one), REMEDY) for one in found]
