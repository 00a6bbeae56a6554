"""Rules evaluated by DuckDB over Arrow change rows: who passes, who is refused and why."""

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.quality import duck
from cdc_core.quality.judge import judge, quarantine_rows
from cdc_core.quality.report import Summary
from cdc_core.quality.rules import Origin, Reads, Rule, Severity
from cdc_core.quality.slice_input import presence_of
from tests.support.waits import patient
from tests.unit.quality.people import BAD, GOOD, IMAGE, RULES, SCHEMA, frame, image, row, rules, schema_of

NAME = "public.people"
EACH_BAD = [(reason, one) for reason, several in BAD.items() for one in several]


def reasons_of(judged):
    return [] if judged.reasons is None else judged.reasons.to_pylist()


def test_good_rows_pass_and_nothing_is_split():
    judged = judge(NAME, frame(GOOD), RULES)
    failed = {rule.name: 0 for rule in RULES} | {"natural_range:wealth": 1}
    assert judged.summary == Summary(len(GOOD), failed, 0, 0, 1000)
    assert judged.bad is None
    assert judged.reasons is None


@pytest.mark.parametrize("number", range(len(GOOD)))
def test_each_good_row_passes_alone(number):
    assert judge(NAME, frame([GOOD[number]]), RULES).bad is None


@pytest.mark.parametrize(("reason", "one"), EACH_BAD, ids=[reason for reason, _ in EACH_BAD])
def test_each_failure_is_found_and_named(reason, one):
    judged = judge(NAME, frame([one]), RULES)
    assert reasons_of(judged) == [[reason]]
    assert {name: count for name, count in judged.summary.failed.items() if count} == {reason: 1}


def test_a_row_names_all_rules_that_it_fails_in_their_order():
    rows = [
        GOOD[0],
        row(28, after=image(name="toolong", mood="glad")),
        GOOD[1],
        row(29, after=image(id=None, mood="x")),
    ]
    judged = judge(NAME, frame(rows), RULES)
    assert judged.bad.to_pylist() == [False, True, False, True]
    assert reasons_of(judged) == [["max_length:na me", "enum_member:mood"], ["key_not_null:id", "enum_member:mood"]]
    assert judged.summary.quarantined == 2
    assert judged.summary.failed["enum_member:mood"] == 2


def test_a_warning_is_counted_and_let_through():
    judged = judge(NAME, frame([row(0, after=image(rescued={"wealth": "Infinity"}))] * 1), RULES)
    assert judged.bad is None
    assert judged.summary.failed["natural_range:wealth"] == 1


def test_a_warning_beside_an_error_is_no_reason():
    judged = judge(NAME, frame([row(0, after=image(mood="x", rescued={"wealth": "NaN"}))]), RULES)
    assert reasons_of(judged) == [["enum_member:mood"]]


def test_an_empty_slice_fails_nothing():
    judged = judge(NAME, frame([]), RULES)
    assert judged.summary == Summary(0, {rule.name: 0 for rule in RULES}, 0, 0, None)


def test_no_rules_count_rows_and_positions():
    assert judge(NAME, frame(GOOD), ()).summary == Summary(len(GOOD), {}, 0, 0, 1000)


def test_repeated_positions_are_counted_wherever_they_stand():
    rows = [row(3, after=image()), row(1, after=image()), row(3, after=image()), row(3, after=image()), row(2, "t")]
    rows.append(row(3, after=image(), commit_lsn=1001))
    assert judge(NAME, frame(rows), RULES).summary.duplicates == 2


def test_positions_in_rising_order_repeat_where_neighbours_are_equal():
    assert judge(NAME, frame([row(0, "t"), row(0, "t"), row(1, "t")]), RULES).summary.duplicates == 1


def test_chunks_and_slices_are_judged_as_one_table():
    rows = [*GOOD, *(one for _, one in EACH_BAD)]
    whole = frame(rows)
    expected = judge(NAME, whole, RULES)
    cut = pa.concat_tables([whole.slice(0, 3), whole.slice(3, 0), whole.slice(3, 9), whole.slice(12)])
    assert cut.column("after").num_chunks > 1
    found = judge(NAME, cut, RULES)
    assert found.summary == expected.summary
    assert found.bad.equals(expected.bad)
    assert found.reasons.equals(expected.reasons)
    tail = judge(NAME, whole.slice(5), RULES)
    assert tail.bad.equals(expected.bad[5:])


def test_more_rows_than_a_vector_of_duckdb_keep_their_order():
    count = 70_000
    rng = np.random.default_rng(7)
    bad = rng.random(count) < 0.3
    moods = np.where(bad, "glad", "sad")
    after = pa.StructArray.from_arrays(
        [
            pa.array(np.arange(count)),
            pa.array(["ann"] * count),
            pa.array(moods),
            pa.nulls(count, pa.decimal128(38, 18)),
            pa.nulls(count, IMAGE.field("__rescued").type),
        ],
        fields=list(IMAGE),
    )
    whole = frame([row(0, after=image())])
    columns = {name: pa.concat_arrays([whole.column(name).chunk(0)] * count) for name in ("__op", "__commit_lsn")}
    columns |= {"__tx_index": pa.array(np.arange(count)), "__lsn": columns["__commit_lsn"]}
    columns |= {name: pa.nulls(count, SCHEMA.field(name).type) for name in ("__xid", "__commit_ts", "__unchanged")}
    table = pa.table({**columns, "before": pa.nulls(count, IMAGE), "after": after}).select(SCHEMA.names)
    judged = judge(NAME, table, RULES)
    assert np.array_equal(judged.bad.to_numpy(zero_copy_only=False), bad)
    assert judged.summary.failed["enum_member:mood"] == bad.sum() == len(judged.reasons)


def test_quarantine_rows_hold_position_reasons_and_images():
    changes = frame(
        [*GOOD, row(28, "u", before=image(), after=image(name="toolong", mood="glad"), unchanged=("wealth",))]
    )
    bad = quarantine_rows(changes, judge(NAME, changes, RULES))
    assert bad.schema.names == [*duck.POSITION_COLUMNS, "reasons", "row", "key"]
    assert bad.schema.field("reasons").type == pa.list_(pa.string())
    assert bad.schema.field("row").type == pa.string()
    (found,) = bad.to_pylist()
    assert (found["__op"], found["__commit_lsn"], found["__tx_index"], found["__xid"]) == ("u", 1000, 28, 7)
    assert found["reasons"] == ["max_length:na me", "enum_member:mood"]
    assert json.loads(found["row"]) == {
        "__unchanged": ["wealth"],
        "before": {"id": 1, "na me": "ann", "mood": "sad", "wealth": None, "__rescued": None},
        "after": {"id": 1, "na me": "toolong", "mood": "glad", "wealth": None, "__rescued": None},
    }


def test_quarantine_rows_need_a_bad_row():
    assert quarantine_rows(frame(GOOD), judge(NAME, frame(GOOD), RULES)) is None


VALUES = {
    "text": (pa.string(), 'a "quoted" \\ line\nbreak', 'a "quoted" \\ line\nbreak'),
    "number": (pa.int64(), 2**62, 2**62),
    "exact": (pa.decimal128(38, 18), Decimal("12345678901234567890.123456789012345678"), None),
    "real": (pa.float64(), 1.5, 1.5),
    "nan": (pa.float32(), float("nan"), "NaN"),
    "much": (pa.float64(), float("inf"), "Infinity"),
    "little": (pa.float64(), float("-inf"), "-Infinity"),
    "flag": (pa.bool_(), True, True),
    "bytes": (pa.binary(), b"\x00\xff", "AP8="),
    "day": (pa.date32(), date(2026, 2, 3), "2026-02-03"),
    "clock": (pa.time64("us"), time(1, 2, 3, 4), "01:02:03.000004"),
    "moment": (pa.timestamp("us", "UTC"), datetime(2026, 2, 3, 4, 5, 6, 7), "2026-02-03T04:05:06.000007Z"),
    "local": (pa.timestamp("us"), datetime(2026, 2, 3, 4, 5, 6, 7), "2026-02-03T04:05:06.000007"),
    "list": (pa.list_(pa.float64()), [1.0, None, float("nan")], [1.0, None, "NaN"]),
    "blobs": (pa.list_(pa.binary()), [b"\x01", None], ["AQ==", None]),
    "it's": (pa.struct([("w b", pa.binary()), ("n", pa.int32())]), {"w b": b"\x01", "n": 1}, {"w b": "AQ==", "n": 1}),
    "plain": (pa.list_(pa.string()), ["a", None], ["a", None]),
    "pairs": (pa.map_(pa.string(), pa.string()), [("a", "b"), ("c", None)], {"a": "b", "c": None}),
    "sparse": (pa.map_(pa.int16(), pa.float32()), [(3, 0.5)], {"3": 0.5}),
    "wide": (pa.decimal256(60, 3), Decimal("1.500"), "1.500"),
}


def test_every_type_is_written_to_the_quarantine_row():
    kind = pa.struct([*((name, kind) for name, (kind, _, _) in VALUES.items()), ("__rescued", IMAGE[-1].type)])
    value = {name: value for name, (_, value, _) in VALUES.items()}
    changes = frame([row(0, after={**value, "__rescued": None}), row(1, after={}), row(2, "t")], schema_of(kind))
    no_rule = Rule("never", "", "false", "nothing passes", origin=Origin.ROW)
    first, second, third = quarantine_rows(changes, judge(NAME, changes, (no_rule,))).column("row").to_pylist()
    found = json.loads(first, parse_float=Decimal, parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    exact = found["after"].pop("exact")
    assert exact == VALUES["exact"][1]
    expected = {name: plain for name, (_, _, plain) in VALUES.items() if name != "exact"}
    assert found["after"] == expected | {"__rescued": None}
    assert json.loads(second)["after"] == dict.fromkeys([*VALUES, "__rescued"])
    assert json.loads(third)["after"] is None


def test_columns_that_duckdb_does_not_know_are_judged_by_presence():
    kind = pa.struct([("id", pa.decimal256(60, 3)), ("__rescued", IMAGE[-1].type)])
    changes = frame([row(0, after={"id": Decimal(1)}), row(1, after={"id": None})], schema_of(kind))
    present = Rule("not_null:id", "id", 'after."id" is not null', "", applies="true", reads=Reads.PRESENCE)
    assert judge("public.wide", changes, (present,)).bad.to_pylist() == [False, True]


def test_a_rule_over_a_type_that_duckdb_does_not_know_is_not_understood():
    kind = pa.struct([("id", pa.decimal256(60, 3)), ("__rescued", IMAGE[-1].type)])
    changes = frame([row(0, after={"id": Decimal(1)})], schema_of(kind))
    with pytest.raises(TableError, match=r"mine of public\.wide is not valid .*\"id\""):
        judge("public.wide", changes, rules(mine="after.id > 0")[-1:])


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        (pa.int32(), 1),
        (pa.string(), "x"),
        (pa.binary(), b"x"),
        (pa.list_(pa.int8()), [1]),
        (pa.struct([("a", pa.int8())]), {"a": None}),
        (pa.null(), None),
    ],
)
@pytest.mark.parametrize(
    "nulls", [(True,) * 9, (False,) * 9, (True, False, False, True, False, True, False, False, True)]
)
def test_presence_is_read_off_any_type(kind, some, nulls):
    values = [None if null else some for null in nulls]
    array = pa.array([None, *values], kind)[1:]
    found = presence_of(array)
    assert found.type == pa.bool_()
    assert found.is_null().to_pylist() == array.is_null().to_pylist()


def test_a_table_follows_its_schema_and_its_rules():
    assert judge(NAME, frame([row(0, after=image())]), rules(mine="after.id = 1")).summary.failed["user:mine"] == 0
    assert judge(NAME, frame([row(0, after=image())]), rules(mine="after.id = 2")).summary.failed["user:mine"] == 1
    wider = pa.struct([("id", pa.string()), *list(IMAGE)[1:]])
    changes = frame([row(0, after=image(id="1"))], schema_of(wider))
    assert judge(NAME, changes, rules(mine="after.id = '1'")).summary.failed["user:mine"] == 0
    assert judge(NAME, frame([row(0, after=image(id=2))]), rules(mine="after.id = 2")).summary.failed["user:mine"] == 0


def test_tables_that_are_alike_share_a_plan_though_their_columns_stand_elsewhere():
    turned = schema_of(pa.struct([*list(IMAGE)[::-1]]))
    more = schema_of(pa.struct([("other", pa.int64()), *list(IMAGE)]))
    for name, schema in (("a", SCHEMA), ("b", more), ("c", turned), ("a", SCHEMA), ("b", more), ("c", turned)):
        changes = frame([row(0, after=image(mood="glad")), row(1, after=image())], schema)
        assert reasons_of(judge(f"public.{name}", changes, RULES)) == [["enum_member:mood"]], name


def test_plans_are_bounded_and_made_again(monkeypatch):
    monkeypatch.setattr(duck, "_KEPT_PLANS", 3)
    changes = frame([row(0, after=image(id=5))])
    for _ in range(2):
        for number in range(6):
            found = judge(f"public.t{number}", changes, rules(mine=f"after.id <> {number}"))
            assert found.summary.failed["user:mine"] == (number == 5)
    engine = duck._engine()
    views = [name for (name,) in engine.connection.execute("SELECT view_name FROM duckdb_views()").fetchall()]
    assert len([name for name in views if name.startswith("changes_")]) == len(engine._plans) <= 3


def test_a_plan_keeps_no_slice():
    judge(NAME, frame(GOOD), RULES)
    with pytest.raises(TableError):
        judge(NAME, frame([row(0, after=image(name="x"))]), rules(mine='cast(after."na me" as int) > 1'))
    assert all(plan.box.table.num_rows == 0 for plan in duck._engine()._plans.values())


def test_threads_share_the_connection():
    def judged(number):
        rows = [row(0, after=image(id=number)), row(1, after=image(mood="glad"))]
        found = judge(f"public.t{number % 3}", frame(rows), rules(mine="after.id % 2 = 0 or after.mood = 'glad'"))
        return found.summary.failed["user:mine"], reasons_of(found)[-1]

    with ThreadPoolExecutor(4) as pool:
        expected = [(number % 2, ["enum_member:mood"]) for number in range(40)]
        assert list(pool.map(judged, range(40), timeout=patient(60))) == expected


def test_what_is_found_can_travel():
    judged = judge(NAME, frame([row(0, after=image(mood="glad"))]), RULES)
    assert pickle.loads(pickle.dumps(judged)).summary == judged.summary


CHILD = """
import os
from cdc_core.quality.judge import judge
from tests.unit.quality.people import BAD, RULES, frame
rows = frame(BAD["enum_member:mood"])
assert judge("public.people", rows, RULES).summary.quarantined == 3
child = os.fork()
if child == 0:
    os._exit(0 if judge("public.people", rows, RULES).summary.quarantined == 3 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert judge("public.people", rows, RULES).summary.quarantined == 3
"""


def test_a_forked_process_opens_its_own_and_a_process_ends_in_silence():
    place = os.path.join(os.path.dirname(__file__), *[os.pardir] * 3)
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=place, capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_warn_rule_of_null_counts_nothing():
    rule = Rule("never", "", "cast(null as boolean)", "", severity=Severity.WARN, origin=Origin.ROW)
    assert judge(NAME, frame(GOOD), (rule,)).summary.failed == {"never": 0}
