"""Judges all rows of a table at once, by the same expectations as a slice, in memory that does not grow with the table.

DuckDB reads the rows in batches. Rows are in memory together only for expectations that it does not measure (a query,
or those that the library evaluates with pandas), which therefore judge a limited number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from cdc_core.errors import NotJudgedError
from cdc_core.quality.duck import columns_of_rules, measuring
from cdc_core.quality.judge import Findings, judge_rows, new_rows, verdict_of
from cdc_core.quality.report import RuleVerdict
from cdc_core.quality.rules import By, Rule
from cdc_core.quality.slice_input import Batches

ROWS_IN_MEMORY = 5_000_000


def judge_whole(
    table: str, rules: Sequence[Rule], schema: pa.Schema, read: Callable[[], Iterator[pa.Table]]
) -> tuple[RuleVerdict, ...]:
    """Have the rules of ``table`` (``schema.table``) judge change rows of ``schema``, which ``read`` returns.

    Raises NotJudgedError naming the rule that cannot be evaluated, and what ``read`` raises.
    """
    with measuring(table, Batches(schema, read), rules) as measured:
        findings = [Findings(*pair) for pair in zip(rules, measured.metrics(), strict=True)]
    for finding in findings:
        if finding.rule.by is not By.SQL and finding.metrics.rows:
            places = judge_rows(table, _judged_rows(table, finding, read), finding)
            count = finding.metrics.unexpected if places is None else len(places)
            finding.metrics = replace(finding.metrics, unexpected=count)
    return tuple(verdict_of(table, finding) for finding in findings)


def columns_read(table: str, rules: Sequence[Rule], schema: pa.Schema) -> set[str] | None:
    """Return the columns of new rows that the rules need; None for all. Raises NotJudgedError."""
    return None if any(rule.by is not By.SQL for rule in rules) else columns_of_rules(table, rules, schema)


def _judged_rows(table: str, finding: Findings, read: Callable[[], Iterator[pa.Table]]) -> pa.Table:
    rule, count = finding.rule, finding.metrics.rows
    if count > ROWS_IN_MEMORY:
        raise NotJudgedError(
            f"Expectation {rule.plain_name} of {table} would judge {count:,} rows in memory, more than "
            f"{ROWS_IN_MEMORY:,}: DuckDB does not measure it.",
            "Use an expectation that DuckDB measures (docs/quality.md lists them), or a condition in SQL.",
            table,
        )
    parts = []
    for changes in read():
        with measuring(table, changes, [rule]) as loaded:
            parts.append(new_rows(changes.filter(pa.array(loaded.judged([rule])[:, 0]))))
    return pa.concat_tables(parts)
