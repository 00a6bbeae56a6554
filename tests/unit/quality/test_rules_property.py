"""Any change rows: the rules that DuckDB says a row fails are those that a plain reading of the rules says."""

from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.quality.judge import judge
from cdc_core.quality.rules import rules_for
from tests.unit.quality.people import NATURAL, TABLE, frame, rules

LABELS = {"sad", "it's", "b\\s", 'q"', "new\nline"}
KNOWN = rules(
    no_zoe="after.\"na me\" <> 'zoe'",
    rich="after.wealth >= 0 or before.wealth is null -- or poor",
    grows="before.id is null or after.id is null or after.id >= before.id",
)


def value(image, name):
    return None if image is None else image[name]


def rescued(image, name):
    return image is not None and image["__rescued"] is not None and name in dict(image["__rescued"])


def expected(row):
    """The names of the rules that a change row fails, in order: each rule read as the sentence it stands for."""
    op, before, after = row["__op"], row["before"], row["after"]
    has_new, has_old = op in ("c", "u", "r"), op == "d"
    unchanged = row["__unchanged"] or []
    failed = []
    if op not in ("c", "u", "d", "r", "t"):
        failed.append("op_known")
    lsn, index = row["__commit_lsn"], row["__tx_index"]
    if lsn is None or lsn <= 0 or (op != "r" and (index is None or index < 0)):
        failed.append("position_valid")
    if row["__lsn"] is not None and lsn is not None and row["__lsn"] > lsn:
        failed.append("lsn_order")
    missing = (has_new and after is None) or (has_old and before is None)
    if missing or (op == "t" and not (before is None and after is None)):
        failed.append("image_present")
    image = before if has_old else after if has_new else None
    if image is not None and image["id"] is None and not rescued(image, "id"):
        kept = has_new and "id" in unchanged and value(before, "id") is not None
        if not kept:
            failed.append("key_not_null:id")
    if has_new and after is not None:
        failed += columns(after, unchanged)
    if op is not None and op != "t":
        failed += users(before, after)
    return failed


def columns(after, unchanged):
    failed = []
    name, mood = after["na me"], after["mood"]
    if name is None and "na me" not in unchanged and not rescued(after, "na me"):
        failed.append("not_null:na me")
    if name is not None and len(name) > 5:
        failed.append("max_length:na me")
    if mood is not None and mood not in LABELS:
        failed.append("enum_member:mood")
    if rescued(after, "wealth"):
        failed.append("natural_range:wealth")
    return failed


def users(before, after):
    failed = []
    if value(after, "na me") == "zoe":
        failed.append("user:no_zoe")
    new, old = value(after, "wealth"), value(before, "wealth")
    if new is not None and new < 0 and old is not None:
        failed.append("user:rich")
    first, second = value(before, "id"), value(after, "id")
    if first is not None and second is not None and second < first:
        failed.append("user:grows")
    return failed


names = st.sampled_from([column.name for column in TABLE.columns])
images = st.none() | st.fixed_dictionaries(
    {
        "id": st.none() | st.integers(-3, 3),
        "na me": st.none()
        | st.sampled_from(["", "ann", "zoe", "äöüßé", "äöüßéx", "👩‍👩‍👧", "a\nb"])
        | st.text("aé😀 ", max_size=8),
        "mood": st.none() | st.sampled_from([*sorted(LABELS), "glad", ""]),
        "wealth": st.none() | st.decimals(-5, 5, places=2).map(Decimal),
        "__rescued": st.none()
        | st.dictionaries(names, st.sampled_from(["NaN", ""]), max_size=2).map(dict.items).map(list),
    }
)
small = st.none() | st.integers(-2, 3)
changes = st.fixed_dictionaries(
    {
        "__op": st.none() | st.sampled_from("cudrtx"),
        "__commit_lsn": small,
        "__tx_index": small,
        "__lsn": small,
        "__xid": small,
        "__commit_ts": st.none(),
        "__unchanged": st.none() | st.lists(names, max_size=2, unique=True),
        "before": images,
        "after": images,
    }
)


@given(st.lists(changes, max_size=40), st.integers(1, 7))
def test_rows_fail_what_they_should(rows, chunk):
    whole = frame(rows)
    cut = pa.concat_tables([whole.slice(0, 0), *(whole.slice(at, chunk) for at in range(0, len(rows), chunk))])
    judged = judge("public.people", cut, KNOWN)
    failed = [expected(row) for row in rows]
    counts = {rule.name: sum(rule.name in found for found in failed) for rule in KNOWN}
    assert judged.summary.failed == counts
    reasons = [[name for name in found if name != "natural_range:wealth"] for found in failed]
    assert judged.summary.quarantined == sum(map(bool, reasons))
    assert (judged.reasons.to_pylist() if judged.reasons is not None else []) == [found for found in reasons if found]
    assert (judged.bad.to_pylist() if judged.bad is not None else [False] * len(rows)) == [
        bool(found) for found in reasons
    ]
    positions = [(row["__commit_lsn"], row["__tx_index"]) for row in rows]
    assert judged.summary.duplicates == len(positions) - len(set(positions))
    assert judged.summary.rows == len(rows)
    assert judged.summary.max_commit_lsn == max((lsn for lsn, _ in positions if lsn is not None), default=None)


def test_the_rules_here_are_all_there_are():
    rows = {rule.name for rule in rules_for(TABLE, NATURAL)}
    assert rows == {
        "op_known",
        "position_valid",
        "lsn_order",
        "image_present",
        "key_not_null:id",
        "not_null:na me",
        "max_length:na me",
        "enum_member:mood",
        "natural_range:wealth",
    }
