import json
from concurrent.futures import ThreadPoolExecutor

from cdc_core.quality import great_expectations as door
from cdc_core.quality.report import Summary
from cdc_core.quality.rules import Rule, Severity

STRICT = Rule("not_null:name", "name", "x", "column name is NOT NULL at the source")
LENIENT = Rule("natural_range:wealth", "wealth", "x", "fits", severity=Severity.WARN)


def test_a_suite_passes_on_counts_of_zero():
    assert door.validate("public.a", (STRICT, LENIENT), Summary(5, {}, 0, 0)).success


def test_a_failing_error_rule_fails_the_suite_and_is_named_in_its_result():
    verdict = door.validate("public.a", (STRICT, LENIENT), Summary(5, {"not_null:name": 2}, 2, 0))
    assert not verdict.success
    result = json.loads(verdict.json)
    failed = [entry for entry in result["results"] if not entry["success"]]
    assert [entry["expectation_config"]["kwargs"]["column"] for entry in failed] == ["not_null:name"]
    assert failed[0]["result"]["observed_value"] == 2
    assert failed[0]["expectation_config"]["severity"] == "critical"


def test_a_failing_warning_does_not_fail_the_suite():
    verdict = door.validate("public.a", (STRICT, LENIENT), Summary(5, {"natural_range:wealth": 1}, 0, 0))
    assert verdict.success
    assert not json.loads(verdict.json)["success"]


def test_a_repeated_position_fails_the_suite():
    assert not door.validate("public.a", (STRICT,), Summary(5, {}, 0, 1)).success


def test_rules_that_changed_make_a_new_suite():
    assert door.validate("public.b", (STRICT,), Summary(1, {"natural_range:wealth": 1}, 0, 0)).success
    stricter = Rule("natural_range:wealth", "wealth", "x", "fits")
    assert not door.validate("public.b", (stricter,), Summary(1, {"natural_range:wealth": 1}, 1, 0)).success


def test_threads_share_the_context():
    def succeeds(n):
        return door.validate(f"public.t{n % 3}", (STRICT,), Summary(1, {"not_null:name": n % 2}, 0, 0)).success

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(succeeds, range(12))) == [n % 2 == 0 for n in range(12)]


def test_data_docs_show_the_last_validations_and_replace_the_former(tmp_path):
    door.validate("public.docs", (STRICT,), Summary(5, {"not_null:name": 2}, 2, 0))
    for _ in range(2):
        index = door.write_data_docs(tmp_path / "docs")
        assert index is not None
        assert "public.docs" in index.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]
