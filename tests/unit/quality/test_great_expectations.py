import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from cdc_core.quality import great_expectations as door
from cdc_core.quality.report import Summary
from cdc_core.quality.rules import Rule, Severity

# The library takes three CPU seconds to import.
pytestmark = pytest.mark.slow

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
    door.validate("public.other_run", (STRICT,), Summary(5, {}, 0, 0))
    door.validate("public.docs", (STRICT,), Summary(5, {"not_null:name": 2}, 2, 0))
    for _ in range(2):  # a run of Dagster may have a folder of its own and that of the connector file
        index = door.write_data_docs(tmp_path / "docs", {"public.docs": ""})
        assert index is not None
        assert "public.docs" in index.read_text() and "public.other_run" not in index.read_text()
    assert door.write_data_docs(tmp_path / "docs", {"public.unseen": ""}) is None
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]


def test_data_docs_say_where_rows_are_that_failed_and_no_values(tmp_path):
    place = "/lake/shop/__quarantine/public/where"
    list(door.validations([("public.where", (STRICT,), Summary(5, {"not_null:name": 2}, 2, 0))]))
    list(door.validations([("public.where", (STRICT,), Summary(7, {"not_null:name": 1}, 1, 0))]))
    index = door.write_data_docs(tmp_path / "docs", {"public.where": place})
    pages = [page.read_text() for page in index.parent.rglob("*.html")]
    assert any(f"{place}, where reasons has not_null:name" in page for page in pages)
    # A plain link of the first page leads there: its own list needs scripts of other sites.
    (link,) = re.findall(r'<li><a href="([^"]+)">public\.where</a></li>', index.read_text())
    assert place in (index.parent / link).read_text()
    # The counts of the whole run, not of its last round.
    texts = [page.read_text() for page in (tmp_path / "docs").rglob("*.json")]
    (result,) = [json.loads(text) for text in texts if '"results"' in text and place in text]
    counts = {one["expectation_config"]["kwargs"]["column"]: one["result"] for one in result["results"]}
    assert counts["rows"]["observed_value"] == 12
    assert counts["not_null:name"]["observed_value"] == 3


def test_data_docs_begin_with_tables_in_which_a_rule_failed(tmp_path):
    list(door.validations([("public.fine", (STRICT,), Summary(5, {}, 0, 0))]))
    list(door.validations([("public.bad", (STRICT,), Summary(5, {"not_null:name": 2}, 2, 0))]))
    index = door.write_data_docs(tmp_path / "docs", seconds=0.0)
    assert "public.fine" not in index.read_text()
