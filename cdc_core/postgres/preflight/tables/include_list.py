"""Checks whether the tables of the include list exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.schema.table import TableId
from cdc_core.selection.patterns import compile_pattern

NAME = "captured tables"
# A pattern of only these characters was meant as a name, although a dot has a meaning in a regex.
_PLAIN = re.compile(r"[\w$. -]+(\\\.[\w$. -]+)*")


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return verdicts(context.selection.table_include_list, context.names, len(context.tables))


def verdicts(patterns: Sequence[str], names: Sequence[TableId], captured: int) -> list[Finding]:
    """``patterns``: table.include.list. ``names``: all existing tables. ``captured``: the number of captured tables."""
    findings = []
    for pattern in patterns:
        if any(compile_pattern(pattern).fullmatch(str(name)) for name in names):
            continue
        if _PLAIN.fullmatch(pattern):
            findings.append(_missing(pattern.replace("\\.", "."), names))
        else:
            findings.append(
                doubtful(
                    NAME, f"The expression {pattern} of table.include.list matches no table.", "Correct or remove it."
                )
            )
    if not captured and not any(finding.is_error for finding in findings):
        findings.append(
            bad(
                NAME,
                f"None of the database's {len(names)} tables is captured.",
                "Check table.include.list, table.exclude.list and the same for schemas; patterns match schema.table.",
            )
        )
    return findings or [good(NAME, f"{captured} of {len(names)} tables are captured.")]


def _missing(wanted: str, names: Sequence[TableId]) -> Finding:
    near = difflib.get_close_matches(wanted, [str(name) for name in names], n=1)
    remedy = f"Did you mean {near[0]}?" if near else "Create it, or take it off the list."
    return bad(NAME, f"Table {wanted} of table.include.list does not exist.", remedy)
