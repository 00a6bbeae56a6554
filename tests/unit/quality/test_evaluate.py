"""The policy of a check: refreshed catalogue rules, repeated positions, the failure limit, the split."""

import dataclasses
import pickle

import pyarrow as pa
import pytest

from cdc_core.errors import LimitExceededError, TableError
from cdc_core.quality import evaluate
from cdc_core.quality.evaluate import applicable, check
from cdc_core.quality.judge import judge
from cdc_core.quality.options import WINDOW, Limits, RecentChanges
from cdc_core.quality.rules import rules_for
from tests.unit.quality.people import BAD, GOOD, IMAGE, NATURAL, RULES, TABLE, frame, image, row, rules, schema_of


def checked(rows, known=RULES, **more):
    return check(frame(rows), TABLE.id, known, **more)


def with_labels(*labels):
    """The table as the catalogue describes it after its enum was given these labels."""
    columns = tuple(
        dataclasses.replace(column, type=dataclasses.replace(column.type, labels=labels))
        if column.name == "mood"
        else column
        for column in TABLE.columns
    )
    return dataclasses.replace(TABLE, columns=columns)


def never():
    raise AssertionError("the catalogue was asked")


def test_good_rows_pass_as_they_came():
    changes = frame(GOOD)
    found = check(changes, TABLE.id, RULES, refresh=lambda: RULES)
    assert found.good is changes
    assert found.bad is None
    assert found.success
    assert {name: count for name, count in found.summary.failed.items() if count} == {"natural_range:wealth": 1}
    assert (found.summary.rows, found.summary.duplicates) == (len(GOOD), 0)
    assert found.rules == RULES


def test_failing_rows_are_separated_and_the_others_continue():
    rows = [one for pair in zip(GOOD[:9], [several[0] for several in BAD.values()], strict=True) for one in pair]
    rows = [
        {**one, "__tx_index": one["__tx_index"] + 100 * number if one["__tx_index"] >= 0 else one["__tx_index"]}
        for number, one in enumerate(rows)
    ]
    changes = frame(rows)
    found = check(changes, TABLE.id, RULES)
    assert found.good.schema == changes.schema
    assert found.good.equals(changes.take(list(range(0, 18, 2))))
    assert found.bad.column("reasons").to_pylist() == [[reason] for reason in BAD]
    assert found.summary.quarantined == len(BAD)
    assert not found.success
    assert {each.rule.name for each in found.verdicts if not each.success} == {*BAD, "natural_range:wealth"}
    assert {each.rule.name: each.metrics.unexpected for each in found.verdicts} == found.summary.failed


def test_a_failing_catalogue_rule_asks_the_catalogue_once():
    asked = []

    def refresh():
        asked.append(1)
        return rules_for(with_labels("sad", "glad"), NATURAL)

    assert checked(BAD["enum_member:mood"][:1], refresh=refresh).success
    still = checked([row(1, after=image(mood="other"))], refresh=refresh)
    assert still.bad.column("reasons").to_pylist() == [["enum_member:mood"]]
    assert asked == [1, 1]


def test_a_warning_of_the_catalogue_asks_it_too():
    wide = dataclasses.replace(TABLE, columns=TABLE.columns[:3])
    found = checked(GOOD, refresh=lambda: rules_for(wide, {name: NATURAL[name] for name in ("id", "na me", "mood")}))
    assert "natural_range:wealth" not in found.summary.failed


@pytest.mark.parametrize("reason", ["op_known", "lsn_order", "user:no_zoe"])
def test_a_rule_that_is_not_the_catalogues_does_not_ask_it(reason):
    assert checked(BAD[reason][:1], refresh=never).summary.quarantined == 1


def test_rules_that_the_catalogue_repeats_are_not_judged_again(monkeypatch):
    calls = []
    monkeypatch.setattr(evaluate, "judge", lambda *given: calls.append(1) or judge(*given))
    found = checked(BAD["enum_member:mood"][:1], refresh=lambda: rules(no_zoe="after.\"na me\" <> 'zoe'"))
    assert found.rules == RULES
    assert found.summary.quarantined == 1
    assert calls == [1]


def test_a_repeated_position_stops_the_table():
    with pytest.raises(TableError, match=r"public\.people has 1 row\(s\) with duplicate positions") as caught:
        checked([row(0, after=image()), row(0, after=image(id=2))])
    assert caught.value.table == "public.people"


def test_more_failures_than_the_limit_stop_the_table():
    bad = {"mood": "x"}
    rows = [row(at, after=image(id=at, **(bad if at < 5 else {}))) for at in range(WINDOW)]
    assert checked(rows, limits=Limits(0.005)).summary.quarantined == 5
    with pytest.raises(LimitExceededError, match=r"5 of 1000 .*enum_member:mood 5\): more than .*limit \(0\.004\)"):
        checked(rows, limits=Limits(0.004))


def test_a_share_is_of_many_changes():
    """Of a quiet table, too: the changes of its last rounds are counted together."""
    rows, limits, recent = [row(0, after=image(mood="x"))], Limits(0.002), RecentChanges()
    for _ in range(2):
        found = checked(rows, limits=limits, recent=recent).summary
        recent = recent.and_also(found.rows, found.quarantined)
    with pytest.raises(LimitExceededError, match=r"after 2 of the 2 before: more than limits.share of a.yaml"):
        checked(rows, limits=dataclasses.replace(limits, share_name="limits.share of a.yaml"), recent=recent)
    assert checked([row(0, after=image())], limits=limits, recent=RecentChanges(2, 2)).success
    faded = recent.and_also(10 * WINDOW, 0)
    assert faded.rows == WINDOW and faded.refused < 1
    assert checked(rows, limits=limits, recent=faded).summary.quarantined == 1


def test_the_limit_counts_rows_and_names_the_worst_rule_first():
    rows = [row(0, after=image()), row(1, after=image(mood="x", name="toolong")), row(2, after=image(mood="x"))]
    with pytest.raises(TableError, match=r"2 of 3 .*\(enum_member:mood 2, max_length:na me 1\)"):
        checked(rows, limits=Limits(0.0))


def test_warnings_do_not_count_against_the_limit():
    assert checked([row(0, after=image(rescued={"wealth": "NaN"}))], limits=Limits(0.0)).success


def test_an_empty_slice_passes():
    assert checked([], limits=Limits(0.0)).success


def test_rules_of_columns_that_the_slice_lacks_are_left_out():
    older = pa.struct([part for part in IMAGE if part.name != "mood"])
    changes = frame([row(0, after=image(mood="glad")), row(1, after=image(name="toolong"))], schema_of(older))
    found = check(changes, TABLE.id, RULES)
    assert found.bad.column("reasons").to_pylist() == [["max_length:na me"]]
    assert "enum_member:mood" not in found.summary.failed
    assert [rule.name for rule in applicable(changes.schema, RULES)] == [
        rule.name for rule in RULES if rule.column != "mood"
    ]


def test_a_users_rule_over_a_column_that_the_slice_lacks_is_named():
    older = pa.struct([part for part in IMAGE if part.name != "mood"])
    with pytest.raises(TableError, match=r"Quality rule mine of public\.people is not valid .*mood"):
        check(frame([row(0, after=image())], schema_of(older)), TABLE.id, rules(mine="after.mood <> 'x'"))


def test_the_outcome_can_travel():
    found = checked([*GOOD, BAD["enum_member:mood"][0]])
    again = pickle.loads(pickle.dumps(found))
    assert again.good.equals(found.good)
    assert again.bad.equals(found.bad)
    assert (again.verdicts, again.rules, again.summary) == (found.verdicts, found.rules, found.summary)
