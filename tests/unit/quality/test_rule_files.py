"""Rule files: what they may hold, what is said of those that cannot be obeyed, and what their rules find."""

import json
import pickle

import pytest

from cdc_core.errors import ConfigError, LimitExceededError, NotJudgedError
from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.quality.options import Limits, QualityOptions, RecentChanges
from cdc_core.quality.rule_files import read_rule_files
from cdc_core.quality.rules import Severity
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.unit.quality.people import TABLE, frame, image, row

PEOPLE = TableId("public", "people")


def folder(tmp_path, **files):
    """Write rule files; ``schema__table__json`` is a suite of the project."""
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        if name.endswith("__json"):
            path = tmp_path / "gx/expectations" / f"{name.removesuffix('__json').replace('__', '/')}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
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
        ("a.b.json", "{}", "a.b.json: a suite belongs to the Great Expectations project, as gx/expectations/a/b.json"),
        ("gx/expectations/a/b.json", "{\n", "gx/expectations/a/b.json, line 2: no JSON"),
        ("gx/expectations/a/b.json", "[]", "gx/expectations/a/b.json: no list of expectations"),
        ("gx/expectations/a/b.json", '{"expectations": [{"kwargs": {}}]}', "a/b.json: expectation 1 has no type"),
    ],
)
def test_errors_are_reported_with_their_place(tmp_path, name, text, wrong):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_rule_files(str(tmp_path))
    assert wrong in str(caught.value)


def test_all_problems_are_reported_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"a\.b\.yaml, line 1: .*c/d\.json, line 1: no JSON"):
        read_rule_files(folder(tmp_path, a__b__yaml="limits: {rows: x}", c__d__json="x"))
    with pytest.raises(ConfigError, match="is not a folder"):
        read_rule_files(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("condition", "wrong"),
    [
        ("wealth >", "is not valid"),
        ("random() > 0", "the function random, whose result differs when a round is repeated"),
        ("hight > 3", "refers to hight, which public.people does not have"),
    ],
)
def test_an_invalid_condition_is_reported_at_the_start(tmp_path, condition, wrong):
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
    assert made.judged(TABLE, frame([row(0, after=image(id=1)), row(1, after=image(id=2))])).summary.quarantined == 1


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
    assert (found.summary.quarantined, found.summary.failed["user:x"], found.summary.failed["user:y"]) == (3, 3, 3)


def test_a_files_share_is_the_tables_limit(tmp_path):
    text = "limits: {share: 0}\nrules:\n- {name: x, condition: id < 1}\n"
    made = checks(folder(tmp_path, public__people__yaml=text))
    with pytest.raises(LimitExceededError, match=r"1 of 2 .*user:x 1"):
        made.judged(TABLE, frame([row(0, after=image(id=1)), row(1, after=image(id=0))]), recent=RecentChanges())
    assert made.judged(TABLE, frame([row(0, after=image(id=1))]), is_batch=False).summary.quarantined == 1


def suite_of(*expectations):
    return json.dumps({"name": "public.people", "expectations": [{"kwargs": {}, **each} for each in expectations]})


UNIQUE = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
MEAN = {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "id", "min_value": 1000}}
NO_ZOE = {
    "type": "unexpected_rows_expectation",
    "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE \"na me\" = 'zoe'"},
}


def test_a_suite_judges_new_rows_and_each_expectation_decides_about_its_rows(tmp_path):
    path = folder(
        tmp_path,
        public__people__json=suite_of(
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "id", "max_value": 5}},
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "mood"}, "severity": "warning"},
            UNIQUE,
            NO_ZOE,
        ),
    )
    made = checks(path)
    assert made.by_rows(TABLE) == ("be_unique:id",)
    rows = [
        row(0, after=image(id=9)),
        row(1, after=image(id=2, mood=None)),
        row(2, "d", before=image(id=3)),
        row(3, "u", before=image(id=2), after=image(id=2)),
        row(4, after=image(id=4, name="zoe")),
        row(5, "u", before=image(id=4), after=image(id=4, name=None), unchanged=("na me", "id")),
    ]
    found = made.judged(TABLE, frame(rows))
    assert found.failure is None and not found.success
    refused = [number for number, bad in enumerate(found.refused.to_pylist()) if bad]
    reasons = dict(zip(refused, found.reasons.to_pylist(), strict=True))
    # The rows at 1 and 3 have one id, that at 5 says nothing of its own.
    expected = {0: ["be_between:id"], 1: ["be_unique:id"], 3: ["be_unique:id"], 4: ["unexpected_rows_expectation"]}
    assert {at: [name.removeprefix("user:") for name in names] for at, names in reasons.items()} == expected
    assert found.summary.failed["user:not_be_null:mood"] == 1


@pytest.mark.parametrize(
    "kwargs", [MEAN["kwargs"], {**MEAN["kwargs"], "row_condition": 'col("id") > 0'}], ids=["duckdb", "library"]
)
def test_an_expectation_on_the_slice_stops_it_and_says_what_was_observed(tmp_path, kwargs):
    if "row_condition" in kwargs:
        kwargs |= {"condition_parser": "great_expectations"}
    made = checks(folder(tmp_path, public__people__json=suite_of({**MEAN, "kwargs": kwargs})))
    changes = frame([row(0, after=image(id=2)), row(1, after=image(id=3)), row(2, "d", before=image(id=9))])
    failure = made.judged(TABLE, changes).failure
    assert "mean_to_be_between:id on 2 rows, observed 2.5, expected min_value 1000" in failure.message
    assert "wal2lake replay" in failure.remedy and "--accept mean_to_be_between:id" in failure.remedy
    assert made.judged(TABLE, changes, accept=["mean_to_be_between:id"]).failure is None
    assert made.judged(TABLE, changes, accept_all=True).failure is None
    assert made.judged(TABLE, changes, is_batch=False).failure is None
    assert made.judged(TABLE, frame([row(0, after=image(id=1000))])).failure is None
    assert made.judged(TABLE, frame([row(0, "d", before=image(id=2))])).failure is None  # no row to be judged
    (tmp_path / "w").mkdir()
    warned = checks(folder(tmp_path / "w", public__people__json=suite_of({**MEAN, "severity": "warning"})))
    found = warned.judged(TABLE, changes)
    assert found.failure is None and found.success and not found.verdicts[-1].success


RAISING = {
    "the library, from metrics": {**MEAN, "kwargs": {"column": "id", "min_value": "a"}},
    "the library, from rows": {**UNIQUE, "type": "expect_column_values_to_be_dateutil_parseable"},
    "no bounds": {"type": "expect_column_values_to_be_between", "kwargs": {"column": "id"}},
    "no engine for it": {
        "type": "expect_column_values_to_match_like_pattern",
        "kwargs": {"column": "id", "like_pattern": "1%"},
    },
    "the query": {
        "type": NO_ZOE["type"],
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE nothing = 1"},
    },
    "a value": {
        "type": NO_ZOE["type"],
        "kwargs": {"unexpected_rows_query": "SELECT * FROM {batch} WHERE cast(mood AS int) = 1"},
    },
}


@pytest.mark.parametrize("expectation", RAISING.values(), ids=RAISING)
@pytest.mark.parametrize("severity", ["critical", "warning"])
def test_what_cannot_be_judged_does_not_pass(tmp_path, expectation, severity):
    path = folder(tmp_path, public__people__json=suite_of({**expectation, "severity": severity}))
    with pytest.raises(NotJudgedError, match=r"public\.people (could not be evaluated|is not valid|failed)") as caught:
        checks(path).judged(TABLE, frame([row(0, after=image(mood="sad"))]))
    assert "sad" not in str(caught.value) and caught.value.table == "public.people"


def test_the_verdict_is_the_librarys(tmp_path, monkeypatch):
    """What it answers decides, whatever the counts say, and what it raises stops the table."""
    from great_expectations.expectations.core import ExpectColumnValuesToBeBetween as Between

    path = folder(
        tmp_path,
        public__people__json=suite_of(
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "id", "max_value": 5}}
        ),
    )
    changes = frame([row(0, after=image(id=9))])
    assert checks(path).judged(TABLE, changes).summary.quarantined == 1
    monkeypatch.setattr(Between, "_validate", lambda *_, **__: {"success": True})
    assert checks(path).judged(TABLE, changes).refused is None

    def raising(*_, **__):
        raise RuntimeError("value 7755331177")

    monkeypatch.setattr(Between, "_validate", raising)
    with pytest.raises(NotJudgedError, match=r"be_between:id of public\.people .*RuntimeError") as caught:
        checks(path).judged(TABLE, changes)
    assert "7755331177" not in str(caught.value)


@pytest.mark.parametrize(
    ("expectation", "wrong"),
    [
        ({"type": "expect_what"}, "expect_what"),
        ({**MEAN, "kwargs": {"colum": "id"}}, "mean_to_be_between"),
        ({**UNIQUE, "kwargs": {"column": "hight"}}, "refers to hight, which public.people does not have"),
        (
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "id", "mostly": "all"}},
            "not_be_null:id",
        ),
        (
            {"type": "expect_column_values_to_match_like_pattern", "kwargs": {"column": "id", "like_pattern": "1%"}},
            "DuckDB does not measure expect_column_values_to_match_like_pattern with these kwargs, and Great",
        ),
    ],
)
def test_expectations_that_cannot_be_evaluated_are_reported_at_the_start(tmp_path, expectation, wrong):
    (problem,) = checks(folder(tmp_path, public__people__json=suite_of(expectation))).rule_problems([TABLE])
    assert wrong in problem


@pytest.mark.parametrize(
    ("kind", "kwargs", "unexpected"),
    [
        ("match_like_pattern", {"like_pattern": "s%"}, [1, 2]),
        ("not_match_like_pattern", {"like_pattern": "_ad"}, [0, 2]),
        ("match_like_pattern_list", {"like_pattern_list": ["s%", "%d"]}, []),
        ("match_like_pattern_list", {"like_pattern_list": ["s%", "%d"], "match_on": "all"}, [1, 2]),
        ("not_match_like_pattern_list", {"like_pattern_list": ["b%", "m%"]}, [1, 2]),
    ],
)
def test_like_patterns_are_measured_although_pandas_has_none(tmp_path, kind, kwargs, unexpected):
    stated = {"type": f"expect_column_values_to_{kind}", "kwargs": {"column": "na me", **kwargs}}
    made = checks(folder(tmp_path, public__people__json=suite_of(stated)))
    assert made.rule_problems([TABLE]) == [] and made.by_rows(TABLE) == ()
    names = ("sad", "bd", "mad", None)
    rows = [row(n, after=image(id=n, name=name)) for n, name in enumerate(names)]
    found = made.judged(TABLE, frame(rows)).verdicts[-1]
    refused = made.judged(TABLE, frame(rows)).refused
    assert found.metrics.unexpected == len(unexpected)
    own = [n for n, bad in enumerate([False] * 4 if refused is None else refused.to_pylist()) if bad]
    assert [n for n in own if names[n] is not None] == unexpected
