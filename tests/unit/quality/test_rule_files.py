"""Rule files: what they may hold, what is said of those that cannot be obeyed, and what their rules find."""

import json
import pickle

import pandas as pd
import pytest

from cdc_core.engine.checks.table_checks import TableChecks
from cdc_core.errors import ConfigError, LimitExceededError
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.quality.expectations import NotCompiledError, compiled
from cdc_core.quality.great_expectations import _library as library
from cdc_core.quality.great_expectations import suite_problem, validate_sample
from cdc_core.quality.options import Limits, QualityOptions, Recent
from cdc_core.quality.rule_files import read_rule_files
from cdc_core.quality.rules import Severity
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.unit.quality.people import TABLE, frame, image, row

PEOPLE = TableId("public", "people")


def folder(tmp_path, **files):
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return str(tmp_path)


def same(table):
    return table


def checks(path, **options):
    plan = TypingPlan(TypeOptions(), SelectionOptions())
    made = TableChecks(QualityOptions(**options), plan, same, read_rule_files(path))
    return pickle.loads(pickle.dumps(made))


RULES = """
tables: ['public\\.pe.*', 'other\\..*']
limits: {rows: 7, share: 0.5}
rules:
  - name: rich
    condition: wealth > 10
    tolerance: 1
  - name: named
    condition: '"na me" is not null and length("na me") < 4'
    severity: warn
    description: a short name
    tolerance: 2.5%
"""


def test_a_file_says_what_it_is_for(tmp_path):
    found = read_rule_files(folder(tmp_path, some__yaml=RULES, public__people__yml="rules: []", note__txt="{"))
    rich, named = found.rules(PEOPLE)
    assert (rich.name, rich.condition, rich.severity, rich.tolerated_rows) == ("rich", "wealth > 10", Severity.ERROR, 1)
    assert (named.severity, named.tolerated_share, named.description) == (Severity.WARN, 0.025, "a short name")
    assert rich.place == "some.yaml, line 6"
    assert found.rules(TableId("public", "apes")) == ()
    assert found.limits(PEOPLE, Limits(1.0, 0)) == Limits(0.5, 7, "limits.share of some.yaml")
    assert found.limits(TableId("public", "apes"), Limits(1.0, 3)) == Limits(1.0, 3)


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("a.b.yaml", "rules: [", "a.b.yaml, line 1: no YAML"),
        ("a.b.yaml", "rules:\n- name: x\n", "a.b.yaml, line 2: rule x has no condition"),
        ("a.b.yaml", "rules:\n- condition: x\n", "a.b.yaml, line 2: a rule without a name"),
        ("a.b.yaml", "rules:\n- {name: x, condition: y, sevrity: warn}\n", "a.b.yaml, line 2: sevrity is not known"),
        ("a.b.yaml", "rules:\n- {name: x, condition: y, severity: bad}\n", "severity of rule x is neither error nor"),
        ("a.b.yaml", "rules:\n- {name: x, condition: y, tolerance: 1.5}\n", "tolerance of rule x is no number"),
        ("a.b.yaml", "rules:\n- {name: x, condition: y}\n- {name: x, condition: z}\n", "line 3: a second rule named x"),
        ("a.b.yaml", "limits: {share: 2}\n", "limits.share is not a number from 0 to 1"),
        ("a.b.yaml", "limits: {rows: many}\n", "limits.rows is not a whole number"),
        ("a.b.yaml", "tables: ['(']\n", "a.b.yaml, line 1: a pattern in tables is no regular expression"),
        ("ab.yaml", "rules: []\n", "a name other than schema.table"),
        ("a.b.json", "{\n", "a.b.json, line 2: no JSON"),
        ("a.b.json", "[]", "a.b.json: no list of expectations"),
        ("a.b.json", '{"expectations": [{"kwargs": {}}]}', "a.b.json: expectation 1 has no type"),
        (
            "a.b.json",
            '{"expectations": [{"type": "expect_column_values_to_be_between", "kwargs": {"column": "x"}}]}',
            "expectation 1 (expect_column_values_to_be_between): neither min_value nor max_value",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, name, text, wrong):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_rule_files(str(tmp_path))
    assert wrong in str(caught.value)


def test_every_problem_is_told_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"a\.b\.yaml, line 1: .*c\.d\.json, line 1: no JSON"):
        read_rule_files(folder(tmp_path, a__b__yaml="limits: {rows: x}", c__d__json="x"))
    with pytest.raises(ConfigError, match="is not a folder"):
        read_rule_files(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("condition", "wrong"),
    [
        ("wealth >", "is not valid"),
        ("(select 1) > 0", "a subquery"),
        ("getenv('HOME') = 'x'", "the function getenv"),
        ("hight > 3", "refers to hight, which public.people does not have"),
    ],
)
def test_a_condition_that_cannot_be_obeyed_is_told_at_the_start(tmp_path, condition, wrong):
    made = checks(folder(tmp_path, public__people__yaml=f"rules:\n- name: x\n  condition: {json.dumps(condition)}\n"))
    (problem,) = made.rule_problems([TABLE])
    assert "public.people.yaml, line 3: rule x" in problem and wrong in problem


def test_rules_look_at_new_rows_whose_columns_are_there(tmp_path):
    rule = 'rules:\n- name: x\n  condition: \'"na me" is not null and lower("na me") <> after.mood\'\n'
    made = checks(folder(tmp_path, public__people__yaml=rule))
    changes = frame(
        [
            row(0, after=image(name="sad")),
            row(1, after=image(name="ann")),
            row(2, "u", after=image(name=None), unchanged=("na me",)),
            row(3, after=image(name=None, rescued={"na me": "x"})),
            row(4, "d", before=image(name=None)),
            row(5, "t"),
            row(6, "u", after=image(name="ok", mood=None)),
        ]
    )
    found = made.judged(TABLE, changes)
    assert found.refused.to_pylist() == [True, *[False] * 6]
    assert found.reasons.to_pylist() == [["user:x"]]
    assert json.loads(found.bad.column("key")[0].as_py()) == {"id": 1}


def test_a_lambdas_parameter_is_no_column(tmp_path):
    rule = (
        'rules:\n- name: x\n  condition: "list_sum(list_transform([1, 2], lambda id: id + 1)) < 9 and after.id = 1"\n'
    )
    made = checks(folder(tmp_path, public__people__yaml=rule))
    assert made.judged(TABLE, frame([row(0, after=image(id=1)), row(1, after=image(id=2))])).report.quarantined == 1


def test_so_many_failures_as_are_tolerated_do_not_count(tmp_path):
    rule = (
        "rules:\n- {name: x, condition: id < 10, tolerance: 1}\n"
        "- {name: y, condition: id < 10, tolerance: 50%, severity: warn}\n"
    )
    made = checks(folder(tmp_path, public__people__yaml=rule))
    rows = [row(n, after=image(id=n)) for n in range(8, 11)]
    found = made.judged(TABLE, frame(rows))
    assert (found.refused, found.summary.failed["user:x"], found.summary.failed["user:y"]) == (None, 0, 0)
    found = made.judged(TABLE, frame([*rows, row(11, after=image(id=11)), row(12, after=image(id=12))]))
    assert (found.report.quarantined, found.summary.failed["user:x"], found.summary.failed["user:y"]) == (3, 3, 3)


def test_a_files_share_is_the_tables_limit(tmp_path):
    text = "limits: {share: 0}\nrules:\n- {name: x, condition: id < 1}\n"
    made = checks(folder(tmp_path, public__people__yaml=text))
    with pytest.raises(LimitExceededError, match=r"1 of 2 .*user:x 1"):
        made.judged(TABLE, frame([row(0, after=image(id=1)), row(1, after=image(id=0))]), recent=Recent())
    assert made.judged(TABLE, frame([row(0, after=image(id=1))]), is_batch=False).report.quarantined == 1


COMPILED = [
    ("expect_column_values_to_not_be_null", {"column": "s"}),
    ("expect_column_values_to_be_null", {"column": "s"}),
    ("expect_column_values_to_be_between", {"column": "n", "min_value": 1, "max_value": 3, "strict_max": True}),
    ("expect_column_values_to_be_between", {"column": "n", "min_value": 1, "strict_min": True}),
    ("expect_column_values_to_be_in_set", {"column": "s", "value_set": ["a", "it's"]}),
    ("expect_column_values_to_not_be_in_set", {"column": "n", "value_set": [2, 3]}),
    ("expect_column_values_to_match_regex", {"column": "s", "regex": "^b+$"}),
    ("expect_column_values_to_not_match_regex", {"column": "s", "regex": "b"}),
    ("expect_column_value_lengths_to_be_between", {"column": "s", "min_value": 2, "max_value": 3}),
    ("expect_column_value_lengths_to_equal", {"column": "s", "value": 4}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "n", "column_B": "m"}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "n", "column_B": "m", "or_equal": True}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "n", "column_B": "m"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kwargs"), COMPILED, ids=lambda given: given if isinstance(given, str) else "")
def test_a_compiled_expectation_finds_what_great_expectations_finds(kind, kwargs):
    gx = library()
    rows = pd.DataFrame({"s": ["a", "bb", "it's", None, "bcd"], "n": [1, 2, 3, 4, 1], "m": [1, 3, 2, 4, 0]})
    rule = compiled(kind, kwargs)
    import duckdb

    mine = duckdb.connect().execute(f"select n, coalesce({rule.condition}, true) from rows").fetchall()
    failing = sum(not passes for _, passes in mine)
    context = gx.get_context(mode="ephemeral")
    batch = context.data_sources.add_pandas("p").add_dataframe_asset("a").add_batch_definition_whole_dataframe("b")
    suite = gx.ExpectationSuite(name="s", expectations=[{"type": kind, "kwargs": kwargs}])
    found = batch.get_batch({"dataframe": rows}).validate(suite, result_format="BASIC")
    assert found.results[0].result["unexpected_count"] == failing


def test_mostly_is_a_tolerance_and_aggregates_are_not_compiled():
    kwargs = {"column": "s", "mostly": 0.95}
    assert compiled("expect_column_values_to_not_be_null", kwargs).tolerated_share == pytest.approx(0.05)
    with pytest.raises(NotCompiledError):
        compiled("expect_column_mean_to_be_between", {"column": "n", "min_value": 1})
    with pytest.raises(ValueError, match="mostly"):
        compiled("expect_column_values_to_not_be_null", {"column": "s", "mostly": "all"})


def test_a_suite_is_split_into_rules_and_what_runs_on_samples(tmp_path):
    suite = {
        "name": "people",
        "expectations": [
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "id", "max_value": 5}},
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "mood"}, "severity": "warning"},
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}, "severity": "critical"},
        ],
    }
    path = folder(tmp_path, public__people__json=json.dumps(suite))
    found = read_rule_files(path)
    assert [(rule.name, rule.severity) for rule in found.rules(PEOPLE)] == [
        ("be_between:id", Severity.ERROR),
        ("not_be_null:mood", Severity.WARN),
    ]
    (sampled,) = found.suites(PEOPLE)
    assert [each["type"] for each in json.loads(sampled)] == ["expect_column_values_to_be_unique"]
    found = checks(path).judged(TABLE, frame([row(0, after=image(id=9)), row(1, after=image(id=2, mood=None))]))
    assert found.reasons.to_pylist() == [["user:be_between:id"]]
    assert found.summary.failed["user:not_be_null:mood"] == 1


def test_expectations_over_several_rows_run_on_samples():
    import pyarrow as pa

    suite = json.dumps([{"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}])
    assert validate_sample("public.p", suite, pa.table({"id": [1, 2]})).success
    failed = validate_sample("public.p", suite, pa.table({"id": [7_755_331_177, 7_755_331_177]}))
    assert not failed.success
    assert "7755331177" not in failed.json
    assert suite_problem(suite) == ""
    assert "expect_what" in suite_problem(json.dumps([{"type": "expect_what", "kwargs": {}}]))
    unsaid = {"type": "expect_column_mean_to_be_between", "kwargs": {"colum": "id"}}
    assert "expect_column_mean_to_be_between" in suite_problem(json.dumps([unsaid]))
