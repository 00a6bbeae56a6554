"""Summaries validated off the rounds: nothing blocks, nothing is lost, the thread's errors are verdicts."""

import json
import subprocess
import sys
import threading
import time

import pytest

from cdc_core.quality import great_expectations as door
from cdc_core.quality import validator as module
from cdc_core.quality.great_expectations import Validation
from cdc_core.quality.report import Summary
from cdc_core.quality.rules import Rule, Severity
from cdc_core.quality.validator import SummaryValidator
from tests.support.waits import patient

STRICT = Rule("not_null:name", "name", "x", "column name is NOT NULL at the source")
LENIENT = Rule("natural_range:wealth", "wealth", "x", "fits", severity=Severity.WARN)
RULES = (STRICT, LENIENT)
WAIT = 60


@pytest.fixture
def frames(monkeypatch):
    """A library that only writes down what it is given; (frames, gate that each validation waits for)."""
    gate = threading.Event()
    gate.set()
    seen = []

    def validations(frame, **_):
        seen.append(frame)
        for table, _, summary in frame:
            assert gate.wait(WAIT)
            yield table, Validation(not summary.failed.get(STRICT.name), json.dumps({"rows": summary.rows}))

    monkeypatch.setattr(module, "validations", validations)
    monkeypatch.setattr(module, "load", lambda: None)
    return seen, gate


@pytest.fixture
def made():
    """A validator that does nothing by itself while the test lasts, and is ended with it."""
    validator = SummaryValidator(interval=3600, share=1.0)
    yield validator
    validator.close(WAIT)


def test_rounds_are_summed_up_until_they_are_validated(frames, made):
    made.submit("public.a", RULES, Summary(5, {STRICT.name: 1}, 1, 0, 100))
    made.submit("public.a", RULES, Summary(7, {}, 0, 0, 200))
    made.submit("public.b", RULES, Summary(1, {}, 0, 0, 150))
    assert made.verdict("public.a") is None
    assert made.flush(WAIT)
    ((first, second),) = frames[0]
    assert (first[0], first[2]) == ("public.a", Summary(12, {STRICT.name: 1}, 1, 0, 200))
    assert (second[0], second[2].rows) == ("public.b", 1)
    assert (made.verdict("public.a").validations, made.verdict("public.a").failed) == (1, 1)
    assert made.verdict("public.b").last.success


def test_a_failed_verdict_is_not_lost_under_later_good_ones(frames, made):
    for failed in (1, 0):
        made.submit("public.a", RULES, Summary(5, {STRICT.name: failed}, failed, 0))
        assert made.flush(WAIT)
    verdict = made.verdict("public.a")
    assert (verdict.validations, verdict.failed, verdict.last.success) == (2, 1, True)
    assert not verdict.shown.success


def test_rules_that_changed_meanwhile_are_validated_apart(frames, made):
    made.submit("public.a", RULES, Summary(5, {STRICT.name: 1}, 1, 0))
    made.submit("public.a", (STRICT,), Summary(6, {}, 0, 0))
    made.submit("public.a", RULES, Summary(7, {}, 0, 0))
    assert made.flush(WAIT)
    assert [[(len(rules), summary.rows) for _, rules, summary in frame] for frame in frames[0]] == [[(2, 12)], [(1, 6)]]
    assert made.verdict("public.a").validations == 2


def test_submitting_does_not_wait_for_a_validation(frames, made):
    seen, gate = frames
    gate.clear()
    made.submit("public.a", RULES, Summary(1, {}, 0, 0))
    assert not made.flush(0.05)
    started = time.monotonic()
    for _ in range(1000):
        made.submit("public.a", RULES, Summary(1, {}, 0, 0))
    assert time.monotonic() - started < patient(5)
    assert made.verdict("public.a") is None
    gate.set()
    assert made.flush(WAIT)
    assert [frame[0][2].rows for frame in seen] == [1, 1000]


def test_the_interval_validates_without_being_asked(frames):
    validator = SummaryValidator(interval=0.05)
    validator.submit("public.a", RULES, Summary(1, {}, 0, 0))
    deadline = time.monotonic() + WAIT
    while validator.verdict("public.a") is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert validator.verdict("public.a").last.success
    assert validator.close(WAIT)


@pytest.mark.usefixtures("frames")
def test_it_rests_between_tables_but_not_while_somebody_waits(monkeypatch):
    waited = []
    validator = SummaryValidator(interval=0.05, share=0.25)
    monkeypatch.setattr(validator, "_rest", waited.append)
    validator.submit("public.a", RULES, Summary(1, {}, 0, 0))
    validator.submit("public.b", RULES, Summary(1, {}, 0, 0))
    assert validator.close(WAIT)
    assert len(waited) == 2
    monkeypatch.undo()
    hurried = SummaryValidator(interval=3600, share=1e-9)
    monkeypatch.setattr(
        module, "validations", lambda frame, **_: ((name, Validation(True, "{}")) for name, _, _ in frame)
    )
    monkeypatch.setattr(module, "load", lambda: None)
    for number in range(50):
        hurried.submit(f"public.t{number}", RULES, Summary(1, {}, 0, 0))
    assert hurried.close(WAIT)
    assert len(hurried.verdicts()) == 50


def test_an_error_of_the_library_is_a_failed_verdict_and_the_thread_goes_on(frames, made, monkeypatch, caplog):
    def broken(frame, **_):
        yield frame[0][0], Validation(True, "{}")
        raise RuntimeError("value 7755331177")

    working = module.validations
    monkeypatch.setattr(module, "validations", broken)
    made.submit("public.a", RULES, Summary(1, {}, 0, 0))
    made.submit("public.b", RULES, Summary(1, {}, 0, 0))
    assert made.flush(WAIT)
    assert made.verdict("public.a").last.success
    assert json.loads(made.verdict("public.b").last.json) == {"success": False, "error": "RuntimeError"}
    assert "7755331177" not in caplog.text
    monkeypatch.setattr(module, "validations", working)
    made.submit("public.b", RULES, Summary(1, {}, 0, 0))
    assert made.flush(WAIT)
    assert made.verdict("public.b").last.success


def test_a_closed_validator_takes_nothing_more(frames):
    validator = SummaryValidator(interval=3600)
    validator.submit("public.a", RULES, Summary(1, {}, 0, 0))
    assert validator.close(WAIT)
    validator.submit("public.a", RULES, Summary(1, {}, 0, 0))
    assert validator.flush(WAIT)
    assert validator.verdict("public.a").validations == 1


def test_nothing_submitted_needs_no_thread():
    validator = SummaryValidator()
    assert validator.close(WAIT)
    assert validator.verdicts() == {}


@pytest.mark.slow
def test_the_librarys_own_verdicts_come_through():
    validator = SummaryValidator(interval=3600)
    validator.submit("public.good", RULES, Summary(5, {}, 0, 0))
    validator.submit("public.bad", RULES, Summary(5, {STRICT.name: 2}, 2, 0))
    validator.submit("public.bad", RULES, Summary(5, {STRICT.name: 1}, 1, 0))
    assert validator.close(120)
    assert validator.verdict("public.good").last == Validation(True, "")  # nobody asks for it after the end
    bad = json.loads(validator.verdict("public.bad").last.json)
    assert bad["suite_name"] == "public.bad"
    assert [entry["result"]["observed_value"] for entry in bad["results"] if not entry["success"]] == [3]


def test_the_library_is_not_imported_before_something_is_submitted():
    code = (
        "import sys; from cdc_core.quality.validator import SummaryValidator;"
        "import cdc_core.engine.checks.table_checks, cdc_core.quality.options;"
        "SummaryValidator(); heavy = {'great_expectations', 'duckdb', 'pandas'}; print(sorted(heavy & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert done.stdout.strip() == "[]", done.stderr[-2000:]


def layout(validation):
    """A result without what differs from run to run: times, ids, the data's fingerprint."""
    found = json.loads(validation.json)
    for entry in found["results"]:
        entry["expectation_config"].pop("id")
    meta = found.pop("meta")
    assert meta["validation_id"]
    assert meta["run_id"]["run_time"] == meta["validation_time"]
    return found, sorted(meta)


@pytest.mark.slow
def test_a_frame_of_many_tables_gives_what_their_own_suites_give():
    batches = [
        ("public.f0", RULES, Summary(5, {}, 0, 0)),
        ("public.f1", RULES, Summary(6, {STRICT.name: 2}, 2, 0)),
        ("public.f2", RULES, Summary(7, {LENIENT.name: 3}, 0, 0)),
        ("public.f3", (STRICT,), Summary(8, {}, 0, 1)),
        ("public.f4", (), Summary(0, {}, 0, 0)),
    ]
    alone = {table: door.validate(table, rules, summary) for table, rules, summary in batches}
    for _ in range(2):
        together = door.validate_round(batches)
        assert {table: found.success for table, found in together.items()} == {
            "public.f0": True,
            "public.f1": False,
            "public.f2": True,
            "public.f3": False,
            "public.f4": True,
        }
        for table, found in together.items():
            assert layout(found) == layout(alone[table]), table


@pytest.mark.slow
def test_a_pass_that_is_repeated_tells_its_own_rows_and_time():
    first = json.loads(door.validate_round([("public.again", RULES, Summary(5, {}, 0, 0))])["public.again"].json)
    second = json.loads(door.validate_round([("public.again", RULES, Summary(9, {}, 0, 0))])["public.again"].json)
    rows = [entry for entry in second["results"] if entry["expectation_config"]["kwargs"]["column"] == door.ROWS]
    assert [entry["result"]["observed_value"] for entry in rows] == [9]
    assert second["meta"]["validation_time"] > first["meta"]["validation_time"]
    stricter = (STRICT, Rule(LENIENT.name, "wealth", "x", "fits"))
    third = json.loads(door.validate_round([("public.again", stricter, Summary(9, {}, 0, 0))])["public.again"].json)
    assert [entry["expectation_config"]["severity"] for entry in third["results"]][-1] == "critical"


@pytest.mark.slow
def test_a_repeated_pass_runs_one_suite_for_all_tables(monkeypatch):
    batches = [(f"public.many{n}", RULES, Summary(5, {}, 0, 0)) for n in range(5)]
    door.validate_round(batches)
    monkeypatch.setattr(door, "_own", None)
    assert all(found.success for found in door.validate_round(batches).values())


@pytest.mark.slow
def test_at_the_end_only_tables_that_fail_have_suites_of_their_own(monkeypatch):
    alone, own = [], door._own
    monkeypatch.setattr(door, "_own", lambda table, *more: alone.append(table) or own(table, *more))
    batches = [(f"public.last{n}", RULES, Summary(5, {STRICT.name: n}, n, 0)) for n in range(3)]
    found = dict(door.validations(batches, is_last=True))
    assert sorted(alone) == ["public.last1", "public.last2"]
    assert [found[table].success for table, *_ in batches] == [True, False, False]
    assert [bool(found[table].json) for table, *_ in batches] == [False, True, True]


@pytest.mark.slow
def test_an_empty_round_validates_nothing():
    assert door.validate_round([]) == {}


@pytest.mark.slow
def test_data_docs_show_tables_of_a_round(tmp_path):
    door.validate_round([("public.docs_of_round", RULES, Summary(5, {STRICT.name: 2}, 2, 0))])
    index = door.write_data_docs(tmp_path / "docs")
    assert "public.docs_of_round" in index.read_text()


@pytest.mark.slow
def test_results_do_not_pile_up():
    for _ in range(3):
        door.validate_round([("public.pile", RULES, Summary(5, {STRICT.name: 2}, 2, 0))])
    assert door._session().context.validation_results_store.list_keys() == []


@pytest.mark.slow
def test_rules_are_not_compared_pairwise_neither_new_nor_changed(monkeypatch):
    # By the module's own door: in a process without a main file, the library's import alone ends the process.
    expectation = door._library().expectations.expectation.Expectation

    compared, equal = [], expectation.__eq__
    monkeypatch.setattr(expectation, "__eq__", lambda one, other: compared.append(1) or equal(one, other))
    rules = [Rule(f"not_null:c{number}", f"c{number}", "x", "column is NOT NULL") for number in range(60)]
    for stated in (rules, rules[1:], rules):
        assert door.validate_round([("public.many_rules", stated, Summary(5, {}, 0, 0))])["public.many_rules"].success
    assert len(compared) < 10 * len(rules)
