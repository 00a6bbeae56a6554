"""Random events under random rules: what waits, what is held behind it, what goes in later; against plain Python.

The model folds the events over a dictionary, all but those that the quarantine table says are still to come. So
the lake is right exactly where every change is either in it or told of, and nothing that is in it rests on one that is
not. Which changes wait is modelled on its own, for rows that keep their keys.
"""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from cdc_core.lake.slice.lake_merge import LakeMerge
from cdc_core.lake.slice.order import Merge, Replay
from cdc_core.lake.slice.outcome import Stopwatch
from cdc_core.quality.options import QualityOptions, UserRule
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import OneTable, quarantined
from tests.support.sampling import examples
from tests.support.spark import change, lake_rows, row_type

T = TableId("public", "things")
ROW = row_type(k=pa.string(), v=pa.int64(), t=pa.string())
COLUMNS = tuple(
    Column(name, PgType(oid, kind)) for name, oid, kind in (("k", 25, "text"), ("v", 20, "int8"), ("t", 25, "text"))
)
KEYED = TableSchema(T, 1, COLUMNS, primary_key=("k",))
FULL = TableSchema(T, 1, COLUMNS, primary_key=("k",), identity=ReplicaIdentity.FULL)
KEYLESS = TableSchema(T, 1, COLUMNS, identity=ReplicaIdentity.FULL)


def rules(**predicates):
    return QualityOptions(quality_rules=tuple((name, UserRule(str(T), text)) for name, text in predicates.items()))


def image(k, v=None, t=None):
    return {"k": k, "v": v, "t": t, "__rescued": None}


@st.composite
def histories(draw, table, moves=True):
    """Transactions of one or several events that a source could have sent, and where they are cut into slices."""
    rows, multiset, out, lsn = {}, [], [], 100
    for _ in range(draw(st.integers(1, 14))):
        lsn += 100
        for index in range(draw(st.integers(1, 3))):
            made = _multiset_event(draw, multiset) if not table.primary_key else _keyed_event(draw, rows, table, moves)
            if made is not None:
                op, before, after, unsent = made
                luck = draw(st.integers(0, 9))
                out.append({**change(op, lsn, index, before, after, unsent), "__lsn": lsn - 50 + luck})
    assume(out)
    cuts = draw(st.sets(st.sampled_from([one["__commit_lsn"] for one in out])))
    return out, sorted({*cuts, out[-1]["__commit_lsn"]})


def _keyed_event(draw, rows, table, moves):
    full = table.identity is ReplicaIdentity.FULL
    free = sorted(set("abcd") - set(rows))
    kinds = ["i"] * bool(free) + ["u", "u", "d"] * bool(rows) + ["m"] * bool(rows and free and moves)
    kind = draw(st.sampled_from([*kinds, *(["t"] if draw(st.integers(0, 30)) == 0 else [])]))
    if kind == "t":
        rows.clear()
        return "t", None, None, ()
    if kind == "i":
        k = draw(st.sampled_from(free))
        rows[k] = (draw(st.integers(0, 9)), draw(st.sampled_from("pqr")))
        return "c", None, image(k, *rows[k]), ()
    k = draw(st.sampled_from(sorted(rows)))
    old = image(k, *rows[k]) if full else image(k)
    if kind == "d":
        del rows[k]
        return "d", old, None, ()
    v, t = rows.pop(k)
    is_sent = draw(st.booleans())
    v, t = draw(st.integers(0, 9)), draw(st.sampled_from("xyz")) if is_sent else t
    to = draw(st.sampled_from(free)) if kind == "m" else k
    rows[to] = (v, t)
    unsent = () if is_sent else ("t",)
    return "u", old if full or kind == "m" else None, image(to, v, t if is_sent else None), unsent


def _multiset_event(draw, multiset):
    kind = draw(st.sampled_from(["i", *(["u", "d"] if multiset else [])]))
    new = ("a", draw(st.integers(0, 3)), "p")
    if kind == "i":
        multiset.append(new)
        return "c", None, image(*new), ()
    old = multiset.pop(draw(st.integers(0, len(multiset) - 1)))
    if kind == "d":
        return "d", image(*old), None, ()
    multiset.append(new)
    return "u", image(*old), image(*new), ()


def folded(events, table, waiting):
    """The rows that the events leave but for those that wait, by their places.

    Of a change of the key, which any update is without one, only the new row waits. One that leaves values out waits as
    a whole, and the lake keeps the row that it needs, whatever came to that key and went since.
    """
    keyed, rows, needed, multiset = bool(table.primary_key), {}, {}, Counter()
    for one in events:
        waits = (one["__commit_lsn"], one["__tx_index"]) in waiting
        before, after = one["before"], one["after"]
        if one["__op"] == "t":
            rows, needed, multiset = {}, {}, Counter()
        elif not keyed:
            if before and not (waits and after is None):
                multiset[before["k"], before["v"], before["t"]] -= 1
            if after and not waits:
                multiset[after["k"], after["v"], after["t"]] += 1
        else:
            new = (after["k"], after["v"], after["t"]) if after else None
            base = before["k"] if before else new[0]
            moves = before and (after is None or before["k"] != after["k"])
            if new and one["__unchanged"]:
                new = (*new[:2], rows.get(base, (None, None))[1])
            if waits and moves and one["__unchanged"]:
                needed[base] = rows.get(base)
            elif moves and not (waits and after is None):
                rows.pop(base, None)
                if needed.get(base) is not None:
                    rows[base] = needed[base]
            if new and not waits:
                rows[new[0]] = new[1:]
    return Counter({(k, *rest): 1 for k, rest in rows.items()}) if keyed else +multiset


def places_of(entries):
    """The places of those that wait, as the rows of a quarantine table tell it."""
    return {(one["__commit_lsn"], one["__tx_index"]) for one in entries if one["__waits"]}


class Run:
    """One table brought along, with what its quarantine table says."""

    def __init__(self, folder, table):
        self.one = OneTable(folder, table, ROW)
        self.aside = self.one.paths.quarantine(T)

    @property
    def entries(self):
        return lake_rows(self.aside) if deltalake.DeltaTable.is_deltatable(self.aside) else []

    @property
    def statuses(self):
        """The status of each change that is or was in quarantine, by its place."""
        return {(one["__commit_lsn"], one["__tx_index"]): one["status"] for one in self.entries}

    @property
    def waiting(self):
        return places_of(self.entries)

    @property
    def lake(self):
        return Counter((row["k"], row["v"], row["t"]) for row in self.one.rows)


@pytest.fixture
def folder():
    made = []

    def make():
        made.append(Path(tempfile.mkdtemp(prefix="w2l-quarantine-")))
        return made[-1]

    yield make
    for each in made:
        shutil.rmtree(each, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("table", [KEYED, FULL, KEYLESS], ids=["default", "full", "multiset"])
@pytest.mark.parametrize("others", [False, True], ids=["one writer", "a new writer each round"])
def test_the_lake_is_the_source_but_for_what_waits(table, others, folder):
    @settings(
        max_examples=examples(8),
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories(table), st.integers(2, 5), st.data())
    def run(history, luck, data):
        events, cuts = history
        run = Run(folder(), table)
        run.one.quality = rules(luck=f"__op = 't' or __lsn % {luck} <> 0")
        at = 0
        for cut in cuts:
            part = [one for one in events if at < one["__commit_lsn"] <= cut]
            run.one.append(part, cut)
            outcome = run.one.merge(cut)
            at = cut
            waiting = run.waiting
            assert outcome.done.quarantined is None or quarantined(outcome).waiting == len(waiting)
            assert run.lake == folded([one for one in events if one["__commit_lsn"] <= at], table, waiting)
            # What fails now and is sent as a whole later waits until then, and no longer.
            assert set(waiting) <= {(one["__commit_lsn"], one["__tx_index"]) for one in events}
            if data.draw(st.integers(0, 3)) == 0:
                run.one.quality = rules(luck=f"__op = 't' or __lsn % {luck * 2} <> 0")
                before = len(waiting)
                done = run.one.merge(run.one.lake_position.lsn + 1, replay=Replay())
                event("replayed" if quarantined(done).replayed else "nothing to replay")
                waiting = run.waiting
                assert len(waiting) <= before
                assert run.lake == folded([one for one in events if one["__commit_lsn"] <= at], table, waiting)
                run.one.quality = rules(luck=f"__op = 't' or __lsn % {luck} <> 0")
            if others:
                run = Run(run.one.folder, table)
                run.one.quality = rules(luck=f"__op = 't' or __lsn % {luck} <> 0")
        entries = run.entries
        event("some wait" if places_of(entries) else "none waits")
        done = run.one.merge(run.one.lake_position.lsn + 1, replay=Replay(accept_all=True)) if entries else None
        assert done is None or quarantined(done).waiting == 0
        assert not run.waiting
        assert run.lake == folded(events, table, set())

    run()


@settings(
    max_examples=examples(25),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(histories(KEYED, moves=False), st.integers(2, 4), st.booleans())
def test_only_what_fails_waits_and_what_needs_it_until_it_is_settled(tmp_path_factory, history, luck, drops):
    events, cuts = history
    run = Run(tmp_path_factory.mktemp("waits"), KEYED)
    run.one.quality = rules(luck=f"__op = 't' or __lsn % {luck} <> 0")
    run.one.append(events, cuts[-1])
    for cut in cuts:
        run.one.merge(cut)
    expected: dict[str, list] = {}
    for one in events:
        place = one["__commit_lsn"], one["__tx_index"]
        if one["__op"] == "t":
            expected.clear()
            continue
        key = (one["after"] or one["before"])["k"]
        fails = one["__lsn"] % luck == 0
        if fails or (one["__unchanged"] and expected.get(key)):
            reasons = ["user:luck"] if fails else ["waits_for_earlier_change"]
            expected.setdefault(key, []).append((place, reasons))
        else:
            expected[key] = []
    found = {
        (one["__commit_lsn"], one["__tx_index"]): one["reasons"] for one in run.entries if one["status"] == "waiting"
    }
    assert found == dict(pair for pairs in expected.values() for pair in pairs)
    before = run.waiting
    # What waited and does not any more was superseded; the others become what an operator decides.
    settled = {place: status for place, status in run.statuses.items() if place not in found}
    assert set(settled.values()) <= {"superseded"}
    if found:
        decision, status = (Replay(drop=True), "dropped") if drops else (Replay(accept_all=True), "replayed")
        run.one.merge(run.one.lake_position.lsn + 1, replay=decision)
        assert run.statuses == settled | dict.fromkeys(found, status)
        assert run.lake == folded(events, KEYED, run.waiting if not drops else before)


def test_changes_that_another_commit_has_merged_meanwhile_are_neither_merged_nor_held_again(tmp_path):
    one = OneTable(tmp_path, KEYED, ROW)
    one.quality = rules(luck="__lsn <> 102")
    made = [
        change("c", 200, 0, None, image("a", 1, "p")),
        change("c", 200, 1, None, image("b", 9, "p")),
        change("u", 300, 0, None, image("b", 2), ("t",)),
        change("c", 300, 1, None, image("c", 3, "p")),
    ]
    changes = [{**row, "__lsn": 101 + at} for at, row in enumerate(made)]
    one.append(changes, 300)
    one.merge(200)
    # A run that chose its changes before another one committed the first two.
    task, merge = one.task, Merge.of(one.order(300)).with_quarantine()
    late = LakeMerge(task.run, task.scope, task.paths, task.checks, task.writer, Stopwatch(), task.expected)
    rows = one.changes(changes)
    filtered = late.filtered(one.held(one.lake), merge, rows, late.judged(merge, rows))
    assert (filtered.earlier.num_rows, filtered.rows.column("__tx_index").to_pylist()) == (0, [1])
    assert filtered.quarantined.waiting == 2
    assert sorted((row["__commit_lsn"], row["__tx_index"]) for row in lake_rows(one.paths.quarantine(T))) == [
        (200, 1),
        (300, 0),
    ]
