"""What Arrow counts of a slice in which nothing is wrong is what DuckDB counts; of any other slice it says nothing."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.quality.duck import measuring
from cdc_core.quality.rules import KEY_UNIQUE, Rule, rules_for
from cdc_core.quality.sound import sound_metrics
from tests.unit.quality.people import NATURAL, TABLE, frame, image, row, rules
from tests.unit.quality.test_rules_property import LABELS, changes, expected

GENERATED = (*rules_for(TABLE, NATURAL), Rule(KEY_UNIQUE, "", "true", "no two inserts of one key"))
NONE = {"__xid": None, "__commit_ts": None, "__unchanged": []}

good = st.builds(
    lambda id, name, mood, wealth: {**image(id, name, mood, wealth), "__rescued": None},
    st.integers(-3, 3),
    st.sampled_from(["", "ann", "äöüßé", "a\nb", "👩‍👩‍👧"]),
    st.none() | st.sampled_from(sorted(LABELS)),
    st.none() | st.decimals(-5, 5, places=2).map(Decimal),
)
written = st.builds(
    lambda op, lsn, after, before: {
        "__op": op,
        "__commit_lsn": lsn,
        "__tx_index": 0,
        "__lsn": 1,
        **NONE,
        "before": before if op == "u" else None,
        "after": after,
    },
    st.sampled_from("cur"),
    st.integers(1, 9),
    good,
    st.none() | good,
)
deleted = st.builds(
    lambda lsn, before: {
        "__op": "d",
        "__commit_lsn": lsn,
        "__tx_index": 1,
        "__lsn": 1,
        **NONE,
        "before": before,
        "after": None,
    },
    st.integers(1, 9),
    good,
)


def by_duck(rows):
    with measuring("public.people", rows, GENERATED) as slice_:
        return slice_.metrics()


@given(st.lists(written | deleted, max_size=20), st.lists(changes, max_size=1))
def test_it_counts_as_duckdb_or_not_at_all(rows, others):
    made = frame([*rows, *others])
    found = sound_metrics(made, GENERATED)
    if any(expected(row) for row in others):
        assert found is None
    assert found in (None, by_duck(made))
    if rows and not others:
        assert found is not None, "the usual slice is not left to DuckDB"


@pytest.mark.parametrize("rule", range(len(GENERATED)))
def test_a_rule_that_is_not_as_generated_is_left_to_duckdb(rule):
    made = frame([row(0, after=image())])
    assert sound_metrics(made, GENERATED) is not None
    changed = list(GENERATED)
    changed[rule] = replace(changed[rule], predicate="__op = 'c'")
    assert sound_metrics(made, changed) is None
    changed[rule] = replace(GENERATED[rule], applies="__op = 'd'")
    assert sound_metrics(made, changed) is None
    assert sound_metrics(made, (*GENERATED, *rules(mine="after.id > 0")[-1:])) is None
