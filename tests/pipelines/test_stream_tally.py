import threading
from dataclasses import replace

import numpy as np
import pytest

from cdc_core.engine.reports import BatchReport, MergeReport, RoundReport
from cdc_core.lsn import Lsn
from cdc_core.observe.lag import LagCounts
from cdc_core.quality.check_report import CheckReport, RuleResult
from tests.pipelines.fake import ORDERS, PEOPLE
from tests.support.clock import Clock
from wal2lake.pipelines.reports.stream_tally import RunTally


@pytest.fixture
def clock():
    return Clock(1000.0)


@pytest.fixture
def tally(clock):
    return RunTally(3.0, 60.0, clock)


def check(failed=0, severity="error", observed=""):
    met = not failed and not observed
    rules = (RuleResult("not_null:name", "name", severity, 10, failed, success=met, observed=observed),)
    return CheckReport(ORDERS, 10, failed, met or severity == "warn", rules)


def merge(table=ORDERS, lsn=100, events=5, found=None):
    return MergeReport(table, Lsn(lsn), lsn, events, 2, 2, 1, 0.25, found)


def round_of(*merges, failed=None, lag=1.0):
    return RoundReport(Lsn(100), merges, failed or {}, 77, lag)


def take(tally, table=ORDERS):
    with tally.taken(table) as summary:
        return summary


def test_a_table_is_due_some_seconds_after_its_first_merge_and_then_once_a_minute(tally, clock):
    due = []
    for second in range(200):
        tally.add_round(round_of(merge(lsn=second)))
        if tally.due():
            due.append(second)
            take(tally)
        clock.now += 1
    assert due == [3, 63, 123, 183]


def test_a_table_is_new_until_its_first_report(tally):
    assert not tally.has_new()
    tally.add_round(round_of(merge()))
    assert tally.has_new()
    take(tally)
    tally.add_round(round_of(merge()))
    assert not tally.has_new()
    tally.add_round(round_of(merge(PEOPLE)))
    assert tally.has_new()


def test_an_idle_table_is_due_at_once_when_it_has_changes_and_not_before(tally, clock):
    tally.add_round(round_of(merge()))
    take(tally)
    clock.now += 500
    assert tally.due() == [] == tally.unreported()
    tally.add_round(round_of(merge()))
    assert tally.due() == [ORDERS] == tally.unreported()


def test_the_table_that_waits_longest_is_first(tally, clock):
    tally.add_round(round_of(merge(PEOPLE)))
    clock.now += 1
    tally.add_round(round_of(merge(ORDERS)))
    clock.now += 10
    assert tally.due() == [PEOPLE, ORDERS]


def test_a_report_sums_what_came_since_the_last_one_and_keeps_the_position(tally):
    tally.add_round(round_of(merge(lsn=100), lag=4.0))
    tally.add_round(round_of(merge(lsn=200), lag=0.5))
    totals = take(tally).totals
    assert (totals.rounds, totals.events, totals.inserted, totals.updated, totals.deleted) == (2, 10, 4, 4, 2)
    assert (totals.lsn, totals.lake_version, totals.seconds) == (200, 200, 0.5)
    assert (totals.lag_seconds, totals.lag_seconds_max, totals.lag_bytes) == (0.5, 4.0, 77)
    empty = take(tally).totals
    assert (empty.rounds, empty.events, empty.lsn, empty.lag_seconds_max) == (0, 0, 200, 0.0)


def test_a_report_that_fails_leaves_its_totals_for_the_next(tally, clock):
    tally.add_round(round_of(merge(lsn=100)))
    clock.now += 3
    with pytest.raises(KeyboardInterrupt), tally.taken(ORDERS):
        tally.add_round(round_of(merge(lsn=200)))
        raise KeyboardInterrupt
    assert tally.due() == [ORDERS]
    totals = take(tally).totals
    assert (totals.rounds, totals.events, totals.lsn) == (2, 10, 200)


def test_a_reported_event_is_not_reported_again_after_an_error(tally, clock):
    tally.add_round(round_of(merge(lsn=100), failed={PEOPLE: "Column x became text."}))
    with pytest.raises(KeyboardInterrupt), tally.taken(ORDERS) as summary:
        summary.reported = True
        raise KeyboardInterrupt
    assert tally.unreported() == [ORDERS, PEOPLE]
    totals = take(tally).totals
    assert (totals.rounds, totals.events, totals.lsn) == (0, 0, 100)


def test_checks_are_summed_over_the_run_with_the_worst_verdict(tally):
    tally.add_round(round_of(merge(found=check(2, observed="1.5"))))
    take(tally)
    tally.add_round(round_of(merge(found=check(0))))
    tally.add_round(round_of(merge(found=check(0))))
    checks = take(tally).checks
    (rule,) = checks.rules
    assert (rule.checked, rule.failed, rule.success, rule.observed) == (30, 2, False, "1.5")
    assert (checks.rows, checks.quarantined) == (30, 2)
    assert (checks.checks, checks.failed_checks) == (3, 1)
    assert (checks.failed_rules(errors=True), checks.failed_rules(errors=False)) == ([rule], [])
    assert [one.table for one in tally.judgements()] == [ORDERS]


def test_the_judgement_of_a_slice_that_was_not_merged_counts(tally, clock):
    refused = replace(round_of(failed={ORDERS: "Changes fail."}), refused=(check(observed="2.5"),))
    tally.add_round(refused)
    clock.now += 3
    assert tally.due() == [ORDERS]
    summary = take(tally)
    assert (summary.error, summary.totals.rounds) == ("Changes fail.", 0)
    assert (summary.checks.checks, summary.checks.failed_checks) == (1, 1)
    assert [rule.observed for rule in summary.checks.failed_rules(errors=True)] == ["2.5"]


def test_a_paused_table_is_reported_once_until_its_error_changes_or_it_is_merged(tally, clock):
    still = round_of(merge(PEOPLE), failed={ORDERS: "Column x became text."})
    tally.add_round(still)
    summary = take(tally)
    assert (summary.error, summary.totals.rounds) == ("Column x became text.", 0)
    tally.add_round(still)
    assert tally.unreported() == [PEOPLE]
    tally.add_round(replace(still, failed={ORDERS: "Column y became text."}))
    assert tally.unreported() == [ORDERS, PEOPLE]
    assert take(tally).error == "Column y became text."
    tally.add_round(round_of(merge(PEOPLE)))
    assert take(tally).error == "Column y became text."
    tally.add_round(round_of(merge(ORDERS)))
    assert take(tally).error is None
    assert tally.merged == {ORDERS, PEOPLE}


def test_the_drain_is_reported_likewise(tally, clock):
    tally.add_batch(BatchReport(1, {ORDERS: 3, PEOPLE: 4}, Lsn(10), 5, 0.5))
    tally.add_batch(BatchReport(2, {ORDERS: 1}, Lsn(20), 6, 0.5))
    tally.add_round(round_of(merge(), lag=2.0))
    assert not tally.changes_are_due()
    clock.now += 3
    assert tally.changes_are_due()
    with pytest.raises(RuntimeError), tally.changes_taken():
        raise RuntimeError
    with tally.changes_taken() as totals:
        assert (totals.batches, totals.events, totals.rounds, totals.seconds) == (2, 8, 1, 1.0)
        assert (totals.commit_lsn, totals.lag_bytes, totals.lag_seconds) == (20, 77, 2.0)
    assert not tally.has_changes
    tally.add_round(round_of())
    assert not tally.has_changes


def test_nothing_is_lost_between_threads(tally):
    taken = []
    done = threading.Event()

    def write():
        for lsn in range(5000):
            tally.add_round(round_of(merge(lsn=lsn)))
        done.set()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        taken.append(take(tally).totals.events)
    taken.append(take(tally).totals.events)
    assert done.is_set()
    assert sum(taken) == 2 * 5000 * 5


def test_the_lag_is_that_of_the_changes_from_their_commits_to_the_lake(tally):
    """Not how old the newest merged commit is while more waits, which is 0 whenever the stream keeps up."""
    for ages in ([2.0, 4.0], [1.0]):
        lags = LagCounts.of(np.array(ages), np.ones(len(ages), dtype=np.int64))
        tally.add_round(replace(round_of(merge(), lag=0.0), lags=lags))
    totals = take(tally).totals
    assert (totals.lag_seconds, totals.lag_seconds_max) == (1.0, 3.0)
    tally.add_round(replace(round_of(merge(), lag=7.0), lags=LagCounts()))
    assert take(tally).totals.lag_seconds == 7.0, "of a round without changes of its own"
