"""Rules as Spark columns: reasons beside a row, and a batch's counts in one aggregate."""

from __future__ import annotations

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    DateTimeException,
    NumberFormatException,
    ParseException,
    PySparkException,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

from cdc_core.errors import TableError
from cdc_core.quality.report import Summary, error_rules
from cdc_core.quality.rules import Origin, Rule

__all__ = ["DataFrame", "applicable", "split", "summarise", "with_violations"]

VIOLATIONS = "_violations"
REASONS = "reasons"
ROW = "row"
POSITION_COLUMNS = ("__op", "__commit_lsn", "__tx_index", "__lsn", "__xid", "__commit_ts")

_VALUE_ERRORS = (ArithmeticException, DateTimeException, NumberFormatException)


def applicable(changes: DataFrame, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules without those of columns that the batch does not carry, as when its rows are of an older version."""
    carried = {field.name for field in changes.schema["after"].dataType.fields}
    return tuple(rule for rule in rules if rule.origin is not Origin.CATALOGUE or rule.column in carried)


def with_violations(changes: DataFrame, rules: tuple[Rule, ...]) -> DataFrame:
    """Add ``_violations`` array<string>: the names of the rules that a row fails, in order, empty for a good row."""
    named = [F.when(F.expr(rule.failure), F.lit(rule.name)) for rule in rules]
    found = F.array_compact(F.array(*named)) if named else F.array().cast("array<string>")
    return changes.withColumn(VIOLATIONS, found)


def summarise(table: str, changes: DataFrame, rules: tuple[Rule, ...], *, count_duplicates: bool = True) -> Summary:
    """Rows, failures per rule and repeated positions of a batch, in one aggregate: one pass, one row to the driver.

    Raises TableError naming the user's rule that Spark cannot evaluate.
    """
    errors = error_rules(rules)
    anything_failed = " or ".join(rule.failure for rule in errors) or "false"
    columns: list[Column] = [F.count(F.lit(1)).alias("rows"), F.max("__commit_lsn").alias("max_commit_lsn")]
    if count_duplicates:
        columns.append(F.count_distinct("__commit_lsn", "__tx_index").alias("positions"))
    try:
        columns.append(F.count_if(F.expr(anything_failed)).alias("quarantined"))
        columns += [F.count_if(F.expr(rule.failure)).alias(f"failed_{n}") for n, rule in enumerate(rules)]
        row = changes.agg(*columns).collect()[0]
    except (AnalysisException, ParseException, *_VALUE_ERRORS) as error:
        raise _unusable_rule(table, changes, rules, error) from None
    return Summary(
        rows=row["rows"],
        failed={rule.name: row[f"failed_{n}"] for n, rule in enumerate(rules)},
        quarantined=row["quarantined"],
        duplicates=row["rows"] - row["positions"] if count_duplicates else None,
        max_commit_lsn=row["max_commit_lsn"],
    )


def split(changes: DataFrame, rules: tuple[Rule, ...]) -> tuple[DataFrame, DataFrame]:
    """The rows without an error, in the shape they came in, and the others as quarantine rows.

    A quarantine row holds the position columns, ``reasons`` array<string> and ``row``, the change's images and
    unchanged columns as JSON text with nulls kept.
    """
    errors = error_rules(rules)
    marked = with_violations(changes, errors)
    good = marked.where(F.size(VIOLATIONS) == 0).drop(VIOLATIONS)
    images = F.to_json(F.struct("__unchanged", "before", "after"), {"ignoreNullFields": "false"})
    bad = marked.where(F.size(VIOLATIONS) > 0).select(
        *POSITION_COLUMNS, F.col(VIOLATIONS).alias(REASONS), images.alias(ROW)
    )
    return good, bad


def _unusable_rule(
    table: str, changes: DataFrame, rules: tuple[Rule, ...], error: PySparkException
) -> TableError | PySparkException:
    """Name the user's rule that ``error`` came from; the error itself where none of them is to blame."""
    condition = error.getCondition() or type(error).__name__
    users = [rule for rule in rules if rule.origin is Origin.USER]
    for rule in users:
        try:
            _ = changes.select(F.expr(rule.failure)).schema
        except (AnalysisException, ParseException) as refused:
            return TableError(
                f"Quality rule {rule.name.removeprefix('user:')} of {table} cannot be understood "
                f"({refused.getCondition() or type(refused).__name__}): {rule.description}.",
                "Its predicate may use __op, before.<column> and after.<column> in Spark SQL.",
                table,
            )
    if users and isinstance(error, _VALUE_ERRORS):
        names = ", ".join(rule.name.removeprefix("user:") for rule in users)
        # The message of such an error holds the offending value, so only its condition is passed on.
        return TableError(
            f"One of the quality rules {names} of {table} failed while it was evaluated ({condition}).",
            "Use Spark's try_ functions (try_cast, try_divide) where a value may not fit.",
            table,
        )
    return error
