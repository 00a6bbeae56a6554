"""Verdict and unexpected rows of an expectation are those of the library's own pandas engine, for random rows."""

import json
import random
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest

from cdc_core.quality.file_rules import rules_of_files
from cdc_core.quality.great_expectations import frame, library
from cdc_core.quality.judge import judge, new_rows
from cdc_core.quality.regex import translated
from cdc_core.quality.rules import By
from cdc_core.quality.suites import FileExpectation
from cdc_core.quality.whole_table import judge_whole
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.unit.quality.people import RESCUED, row, schema_of
from tests.unit.quality.people import frame as changes_of

TYPES = {
    "n": pa.int64(),
    "m": pa.int64(),
    "s": pa.string(),
    "t": pa.string(),
    "x": pa.float64(),
    "y": pa.float64(),
    "f": pa.float32(),
    "d": pa.decimal128(38, 4),
    "e": pa.decimal128(38, 4),
    "b": pa.bool_(),
    "day": pa.date32(),
}
TABLE = TableSchema(TableId("public", "rows"), 1, tuple(Column(name, PgType(25, "text")) for name in TYPES))
SCHEMA = schema_of(pa.struct([*TYPES.items(), ("__rescued", RESCUED)]))
TEXTS = ["", "a", "b", "ab", "a\n", "é1", "it's", "\u0661", "A b", "ab\nab", "b%", "x" * 12]
BOUND = {"n": [0, -3, 2, 1.5, 7], "d": [0, 0.5, 1, 0.1, -2], "x": [0, 0.5, 1.25, -2], "f": [0, 0.5, 0.1]}
REGEXES = [
    r"^a",
    r"b$",
    r"\d",
    r"^\w+$",
    r"[^a-b]",
    r"(a|é)\d?",
    r"a{1,2}.b",
    r"\s",
    r"^$",
    r"\W|x{9,}?",
    r"a\Z",
    r"(?:ab?)+",
]
# Of a decimal column with nulls the library's pandas engine adds other numbers: it replaces them by place, not by row.
DECIMALS_MISPLACED = tuple(f"expect_column_{name}" for name in ("mean", "sum", "stdev"))
BY_THE_LIBRARY = [r"(?i)A", r"a(?=b)", r"(a)\1", r"\bb", r"a$\n"]


def value(chance, kind):
    if chance.random() < 0.2:
        return None
    if pa.types.is_integer(kind):
        return chance.choice([0, 1, 2, 3, 7, -3, chance.randrange(-(2**52), 2**52)])
    if pa.types.is_floating(kind):
        return chance.choice([0.0, -0.0, 0.5, 1.25, -2.0, float("nan"), 3.0, float(chance.randrange(-64, 64)) / 4])
    if pa.types.is_decimal(kind):
        return Decimal(chance.randrange(-40, 40)) / 4
    if pa.types.is_boolean(kind):
        return chance.random() < 0.5
    return chance.randrange(20_000) if pa.types.is_date(kind) else chance.choice(TEXTS)


def between(chance, bounds):
    low, high = sorted(chance.choices(bounds, k=2))
    given = {
        "min_value": low,
        "max_value": high,
        "strict_min": chance.random() < 0.5,
        "strict_max": chance.random() < 0.5,
    }
    for name in chance.sample(["min_value", "max_value", ""], 1):
        given.pop(name, None)
    return given


def expectation(chance):
    """A random expectation of a kind that DuckDB measures."""
    column = chance.choice(["n", "d", "x", "f"])
    number, text = chance.choice(["n", "x", "d"]), chance.choice(["s", "t"])
    ignore = chance.choice(["both_values_are_missing", "either_value_is_missing", "neither"])
    pair = {
        **dict(zip(("column_A", "column_B"), chance.choice([("n", "m"), ("x", "y")]), strict=True)),
        "ignore_row_if": ignore,
    }
    like = dict(
        zip(("column_A", "column_B"), chance.choice([("n", "m"), ("d", "e"), ("s", "t"), ("x", "y")]), strict=True)
    )
    members = [("s", chance.sample(TEXTS, 3)), ("n", chance.sample([0, 1, 2, 7], 2))]
    member = dict(zip(("column", "value_set"), chance.choice(members), strict=True))
    extreme = chance.choice(["n", "x", "d"])
    any_column = chance.choice([*BOUND, "s"])
    share = between(chance, [0.0, 0.3, 0.7, 1.0])
    return chance.choice(
        [
            ("expect_column_values_to_not_be_null", {"column": chance.choice([*TYPES])}),
            ("expect_column_values_to_be_null", {"column": chance.choice([*TYPES])}),
            ("expect_column_values_to_be_between", {"column": column, **between(chance, BOUND[column])}),
            ("expect_column_values_to_be_in_set", member),
            ("expect_column_values_to_not_be_in_set", member),
            ("expect_column_values_to_match_regex", {"column": text, "regex": chance.choice(REGEXES)}),
            ("expect_column_values_to_not_match_regex", {"column": text, "regex": chance.choice(REGEXES)}),
            ("expect_column_value_lengths_to_be_between", {"column": text, **between(chance, [0, 1, 2, 12])}),
            ("expect_column_value_lengths_to_equal", {"column": text, "value": chance.choice([0, 1, 2])}),
            ("expect_column_pair_values_a_to_be_greater_than_b", {**pair, "or_equal": chance.random() < 0.5}),
            ("expect_column_pair_values_to_be_equal", {**like, "ignore_row_if": ignore}),
            ("expect_column_mean_to_be_between", {"column": number, **between(chance, [-1.3, 0.7, 1e9])}),
            ("expect_column_sum_to_be_between", {"column": number, **between(chance, [-50, 0, 0.5, 90])}),
            ("expect_column_median_to_be_between", {"column": number, **between(chance, [-1, 0, 0.5, 2])}),
            ("expect_column_stdev_to_be_between", {"column": number, **between(chance, [0, 1.3, 1e9])}),
            ("expect_column_min_to_be_between", {"column": extreme, **between(chance, BOUND[extreme])}),
            ("expect_column_max_to_be_between", {"column": extreme, **between(chance, BOUND[extreme])}),
            ("expect_column_unique_value_count_to_be_between", {"column": any_column, **between(chance, [0, 1, 3, 5])}),
            ("expect_column_proportion_of_unique_values_to_be_between", {"column": any_column, **share}),
            ("expect_column_proportion_of_non_null_values_to_be_between", {"column": any_column, **share}),
            ("expect_table_row_count_to_be_between", between(chance, [0, 1, 3, 9])),
            ("expect_table_row_count_to_equal", {"value": chance.choice([1, 4])}),
        ]
    )


def rule_of(kind, kwargs):
    made = FileExpectation("mine", kind, json.dumps(kwargs), "here")
    (rule,) = rules_of_files(TABLE, (), (made,), TYPES)
    return rule


def of_the_library(batch, expectations, rows):
    """What the library says of each, in its own run: success, and the positions of unexpected rows, None for none."""
    gx = library()
    stated = [{"type": kind, "kwargs": kwargs, "meta": {"at": at}} for at, (kind, kwargs) in enumerate(expectations)]
    suite = gx.ExpectationSuite(name="s", expectations=stated)
    found = {}
    for one in batch.get_batch({"dataframe": frame(rows)}).validate(suite, result_format="COMPLETE").results:
        assert not one.exception_info.get("raised_exception"), (one.expectation_config, one.exception_info)
        found[one.expectation_config.meta["at"]] = bool(one.success), one.result.get("unexpected_index_list")
    return [found[at] for at in range(len(expectations))]


@pytest.fixture(scope="module")
def batch():
    context = library().get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False, "metric_calculations": False}
    return context.data_sources.add_pandas("p").add_dataframe_asset("a").add_batch_definition_whole_dataframe("b")


def random_expectations(chance, has_null):
    found = {}
    for _ in range(12):
        kind, kwargs = expectation(chance)
        if has_null and kwargs.get("column") == "d" and kind.startswith(DECIMALS_MISPLACED):
            continue
        if ("values_to" in kind or "lengths" in kind) and "proportion" not in kind:
            kwargs = {**kwargs, "mostly": chance.choice([1, 0.8, 0.5])}
        found[kind, json.dumps(kwargs, sort_keys=True)] = kind, kwargs
    return list(found.values())


def halves(changes):
    return iter([changes.slice(0, 1), changes.slice(1)])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(2))
def test_verdict_and_unexpected_rows_are_those_of_the_librarys_pandas_engine(batch, seed):
    chance, seen, refused = random.Random(seed), set(), 0
    for _ in range(25):
        count = chance.choice([1, 2, 4, 9])
        made = [
            {**{name: value(chance, kind) for name, kind in TYPES.items()}, "__rescued": None} for _ in range(count)
        ]
        changes = changes_of([row(at, after=image) for at, image in enumerate(made)], SCHEMA)
        expectations = random_expectations(chance, any(image["d"] is None for image in made))
        said = of_the_library(batch, expectations, new_rows(changes))
        for (kind, kwargs), (success, unexpected) in zip(expectations, said, strict=True):
            rule = rule_of(kind, kwargs)
            assert rule.by is By.SQL, (kind, kwargs)
            judged = judge("public.rows", changes, (rule,))
            assert judged.verdicts[0].success == success, (kind, kwargs, made, judged.verdicts)
            (whole,) = judge_whole("public.rows", [rule], SCHEMA, partial(halves, changes))
            assert whole.success == success, (kind, kwargs, made)
            found = [] if judged.bad is None else [at for at, bad in enumerate(judged.bad.to_pylist()) if bad]
            # Rows are refused only where the expectation as a whole is not met.
            assert found == ([] if success or unexpected is None else sorted(unexpected)), (kind, kwargs, made)
            seen.add(kind)
            refused += bool(found)
    assert len(seen) == 22 and refused > 20


@pytest.mark.parametrize("pattern", BY_THE_LIBRARY)
def test_a_pattern_that_duckdb_understands_otherwise_is_left_to_the_library(pattern):
    assert translated(pattern) is None
    assert rule_of("expect_column_values_to_match_regex", {"column": "s", "regex": pattern}).by is By.LIBRARY
