"""The last state of each key, what it keeps of the lake's row, and where that row stands."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.errors import LakeError, MissingKeyError, TableError
from cdc_core.lake.reduce.latest import ReducedSlice, reduce_slice
from cdc_core.lake.rows.row_keys import KeyColumns
from cdc_core.lake.rows.row_lineage import KeyEvents, lineages
from cdc_core.lake.rows.survey import Survey, after_position, check_old_rows, invisible, survey
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.delta.source_model import TABLE
from tests.support.spark import change, change_schema, row_type

ROW = row_type(k=pa.string(), v=pa.int32(), big=pa.string())


def table(*rows: dict[str, Any], row: pa.StructType = ROW) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=change_schema(row))


def put(op: str, index: int, key: str, old: str | None = None, unsent: bool = False, **values: Any) -> dict[str, Any]:
    after = {"k": key, "v": index, "big": None if unsent else f"big {index}", **values}
    return change(op, 10, index, None if old is None else {"k": old}, after, ["big"] if unsent else [])


def drop(index: int, key: str) -> dict[str, Any]:
    return change("d", 10, index, {"k": key})


def states(reduced: ReducedSlice) -> dict[str, Any]:
    """Key → None when deleted, else (v, big), and where big is kept (the key it is the lake's of)."""
    keys = [row["k"] for row in reduced.keys.to_pylist()]
    kept = reduced.keep.get("big", np.zeros(len(keys), dtype=bool))
    out: dict[str, Any] = {}
    for n, row in enumerate(reduced.rows.to_pylist()):
        if reduced.deleted[n]:
            assert not kept[n] and reduced.seek[n] == -1
            out[keys[n]] = None
            continue
        assert row["k"] == keys[n]
        assert kept[n] == (reduced.seek[n] >= 0)
        out[keys[n]] = (row["v"], ("lake", keys[reduced.seek[n]]) if kept[n] else row["big"])
    return out


def reduce(*rows: dict[str, Any]) -> dict[str, Any]:
    mixed = random.Random(3).sample(rows, len(rows))
    reduced = reduce_slice(table(*mixed), ["k"], lake_schema(ROW))
    assert reduced.index.match(reduced.keys).tolist() == list(range(reduced.keys.num_rows))
    return states(reduced)


def test_the_last_touch_of_a_key_counts() -> None:
    rows = [put("c", 0, "a"), put("u", 1, "a"), put("c", 2, "b"), drop(3, "b"), drop(4, "c"), put("c", 5, "c")]
    assert reduce(*rows) == {"a": (1, "big 1"), "b": None, "c": (5, "big 5")}


def test_an_unsent_value_is_the_last_one_sent_for_the_row() -> None:
    assert reduce(put("u", 0, "a"), put("u", 1, "a", unsent=True)) == {"a": (1, "big 0")}
    assert reduce(put("u", 0, "a", unsent=True)) == {"a": (0, ("lake", "a"))}
    # An insert knows all; nothing is taken from the row that was there before.
    found = reduce(put("u", 0, "a"), drop(1, "a"), put("c", 2, "a", big=None), put("u", 3, "a", unsent=True))
    assert found == {"a": (3, None)}


def test_unsent_values_go_with_the_row_through_key_changes() -> None:
    chain = [put("u", 0, "b", "a", unsent=True), put("u", 1, "c", "b", unsent=True)]
    assert reduce(*chain) == {"a": None, "b": None, "c": (1, ("lake", "a"))}
    assert reduce(put("u", 9, "x"), *[{**each, "__commit_lsn": 11} for each in chain]) == {
        "x": (9, "big 9"),
        "a": None,
        "b": None,
        "c": (1, ("lake", "a")),
    }
    there_and_back = [put("u", 0, "b", "a", unsent=True), put("u", 1, "a", "b", unsent=True)]
    assert reduce(*there_and_back) == {"a": (1, ("lake", "a")), "b": None}
    known = [put("u", 0, "a"), put("u", 1, "b", "a", unsent=True)]
    assert reduce(*known) == {"a": None, "b": (1, "big 0")}


def test_a_key_that_was_left_is_another_rows_also_where_its_change_is_missing() -> None:
    """The change that brought another row to a is in quarantine; the row that moved to d was not that one."""
    rows = [put("c", 0, "a"), put("u", 1, "d", old="a", unsent=True), put("u", 3, "c", old="a")]
    found = reduce(*rows, put("u", 4, "d", unsent=True))
    assert found == {"a": None, "c": (3, "big 3"), "d": (4, "big 0")}


def test_swapped_rows_keep_their_values() -> None:
    swap = [
        put("u", 0, "t", "a", unsent=True),
        put("u", 1, "a", "b", unsent=True),
        put("u", 2, "b", "t", unsent=True),
    ]
    assert reduce(*swap) == {"a": (1, ("lake", "b")), "b": (2, ("lake", "a")), "t": None}


def test_a_key_taken_over_by_another_row_seeks_that_rows_lake_row() -> None:
    rows = [drop(0, "a"), put("u", 1, "a", "b", unsent=True), put("u", 2, "a", unsent=True), put("c", 3, "b")]
    assert reduce(*rows) == {"a": (2, ("lake", "b")), "b": (3, "big 3")}


def test_a_full_old_tuple_that_changes_no_key_moves_nothing() -> None:
    assert reduce(put("u", 0, "a", "a", unsent=True)) == {"a": (0, ("lake", "a"))}


def test_texts_follow_their_columns() -> None:
    row = row_type(k=pa.date32(), n=pa.decimal128(10, 2), m=pa.decimal128(10, 2))
    low, high = ({"k": None, "__rescued": {"k": text}} for text in ("-infinity", "infinity"))
    rows = [
        change("u", 1, 0, None, {**low, "n": None, "m": None, "__rescued": {"k": "-infinity", "n": "NaN", "m": "NaN"}}),
        change("u", 1, 1, None, {**low, "n": None, "m": 7}, ["n"]),
        change("u", 1, 2, None, {**high, "n": 1, "m": 1}),
        change("u", 1, 3, high, {"k": date(2026, 1, 1), "n": None, "m": 2}, ["n"]),
    ]
    reduced = reduce_slice(table(*rows, row=row), ["k"], lake_schema(row))
    found = {}
    for n, made in enumerate(reduced.rows.to_pylist()):
        key = reduced.keys.to_pylist()[n]
        text = dict(key["__rescued"] or []).get("k")
        found[key["k"] or text] = None if reduced.deleted[n] else (made["n"], made["m"], dict(made["__rescued"] or []))
    assert found == {
        "-infinity": (None, 7, {"k": "-infinity", "n": "NaN"}),
        "infinity": None,
        date(2026, 1, 1): (1, 2, {}),
    }
    assert not reduced.keep


def test_an_unsent_key_is_taken_from_the_old_tuple_text_and_all() -> None:
    row = row_type(k=pa.decimal128(38, 10), v=pa.int32())
    old = {"k": None, "__rescued": {"k": "1e40"}}
    rows = table(change("u", 1, 0, old, {"k": None, "v": 2}, ["k"]), row=row)
    reduced = reduce_slice(rows, ["k"], lake_schema(row))
    [made] = reduced.rows.to_pylist()
    assert dict(made["__rescued"]) == {"k": "1e40"} and made["v"] == 2
    assert not reduced.keep and not reduced.deleted.any()


def test_rows_take_the_lakes_types_and_names() -> None:
    lake = lake_schema(row_type(K=pa.int64(), gone=pa.string(), v=pa.decimal128(12, 4)))
    row = row_type(k=pa.int32(), v=pa.decimal128(10, 2))
    rows = table(change("u", 1, 0, {"k": 1}, {"k": 2, "v": None}, ["v"]), row=row)
    reduced = reduce_slice(rows, ["k"], lake)
    assert reduced.rows.schema.equals(lake) and reduced.index.columns.names == ("K",)
    there = pa.table({"K": pa.array([2**33 + 1, 1, 2])})
    assert reduced.index.match(there).tolist() == [-1, *[reduced.keys["K"].to_pylist().index(key) for key in (1, 2)]]
    assert list(reduced.keep) == ["v"]


def test_nothing_reduces_to_nothing() -> None:
    reduced = reduce_slice(table(), ["k"], lake_schema(ROW))
    assert reduced.rows.num_rows == 0 and reduced.rows.schema.equals(lake_schema(ROW))
    assert reduced.index.match(pa.table({"k": pa.array(["a", None])})).tolist() == [-1, -1]


def test_lives_of_random_chains() -> None:
    """Key changes lead back to the stay in which their row began, in the order of time and over reused keys."""
    chance = random.Random(7)
    at = {key: -1 - key for key in range(8)}  # the life that each key holds; those of the lake's rows are below zero
    new, old, inserts, expected, born = [], [], [], [], 0
    for _ in range(600):
        free, taken = [key for key in range(12) if key not in at], list(at)
        kind = chance.choice([kind for kind in "iumd" if (free or kind in "ud") and (taken or kind == "i")])
        key = chance.choice(free if kind == "i" else taken)
        if kind == "i":
            at[key], born = born, born + 1
        to = chance.choice(free) if kind == "m" else -1 if kind == "d" else key
        lineage = at.pop(key)
        if kind != "d":
            at[to] = lineage
        new.append(to)
        old.append(-1 if kind == "i" or (kind == "u" and chance.random() < 0.5) else key)
        inserts.append(kind == "i")
        expected += [lineage, lineage] if kind == "m" else [lineage]
    deletes = np.array(new) < 0
    key_events = KeyEvents.of(np.array(new), np.array(old), deletes, ~deletes & ~np.array(inserts))
    found = lineages(key_events).tolist()
    # The lives found and those expected pair off one to one.
    assert len(found) == len(expected)
    assert len(set(zip(found, expected, strict=True))) == len(set(found)) == len(set(expected))


def test_the_key_is_what_old_tuples_hold() -> None:
    assert TABLE.row_key == ("h", "k")
    assert replace(TABLE, identity=ReplicaIdentity.INDEX, identity_key=("v",)).row_key == ("v",)
    assert replace(TABLE, identity=ReplicaIdentity.FULL, identity_key=("h", "k", "v")).row_key == ("h", "k")
    assert replace(TABLE, primary_key=()).row_key == ()


def test_only_types_with_misfits_read_texts_for_their_key() -> None:
    assert KeyColumns.of(["k", "v"], lake_schema(ROW)).read == ["k", "v"]
    dated = lake_schema(row_type(d=pa.date32(), k=pa.string()))
    assert KeyColumns.of(["k", "d"], dated).read == ["k", "d", "__rescued"]


def test_a_survey_counts() -> None:
    rows = [put("c", 0, "a"), put("u", 1, "a", "a"), put("u", 2, "a"), drop(3, "a"), change("d", 10, 4)]
    rows += [change("t", 10, 5), change("t", 10, 6), put("c", 7, "a")]
    mixed = table(*random.Random(1).sample(rows, len(rows)))
    assert survey(mixed) == Survey({"c": 2, "u": 2, "d": 2, "t": 2}, (10, 6), 2, 1)
    assert survey(table(put("c", 0, "a"))).only_inserts and not survey(mixed).only_inserts
    assert survey(table()).rows == 0
    assert after_position(mixed, (10, 6)).column("__tx_index").to_pylist() == [7]
    assert after_position(mixed, (9, 99)).num_rows == 8


def test_changes_without_an_old_row_stop_the_table() -> None:
    some = TableSchema(TableId("public", "t"), 1, ())
    deleted, updated = survey(table(change("d", 1, 0))), survey(table(put("u", 0, "a")))
    check_old_rows(updated, True, some)
    check_old_rows(survey(table(put("u", 0, "a", "a"), drop(1, "a"), put("c", 2, "b"))), False, some)
    for facts, keyed in ((deleted, True), (deleted, False), (updated, False)):
        with pytest.raises(TableError, match="REPLICA IDENTITY FULL") as caught:
            check_old_rows(facts, keyed, some)
        assert caught.value.table == "public.t"


def test_changes_of_a_key_of_which_the_server_leaves_out_a_column_pause_the_table() -> None:
    columns = tuple(Column(name, PgType(23, "int4"), optional=False) for name in ("a", "b"))
    partly = TableSchema(TableId("public", "t"), 1, columns, primary_key=("a", "g"), unique_key=("b",))
    assert partly.row_key == () and partly.key == ("a",)
    check_old_rows(survey(table(put("c", 0, "a"))), False, partly)
    for facts in (survey(table(put("u", 0, "a", "a"))), survey(table(drop(1, "a")))):
        with pytest.raises(MissingKeyError, match="does not send g of its replica identity"):
            check_old_rows(facts, False, partly)
    # Under FULL the old row has a unique index's columns, and without one all columns from which g is computed.
    full = replace(partly, identity=ReplicaIdentity.FULL)
    assert full.row_key == ("b",) and full.unsent_identity == ()
    assert replace(full, unique_key=()).row_key == ()
    indexed = replace(partly, identity=ReplicaIdentity.INDEX, identity_key=("b",))
    assert indexed.row_key == ("b",) and indexed.unsent_identity == ()
    hidden = replace(partly, primary_key=("a",), identity=ReplicaIdentity.INDEX, identity_key=("b", "g"))
    assert hidden.row_key == () and hidden.unsent_identity == ("g",)


@pytest.mark.parametrize("epoch", [0, 1, 5])
def test_visibility_follows_the_xid_through_its_wrap(epoch: int) -> None:
    wrap = 2**32
    base = epoch * wrap + wrap
    xmin, xmax, running = base - 3, base + 4, [base - 1, base + 3]
    full = [*range(xmin - 4, xmax + 5)]
    visible = [xid < xmin or (xid < xmax and xid not in running) for xid in full]
    rows = table(*[change("t", 1, n, xid=xid % wrap) for n, xid in enumerate(full)])
    kept = invisible(rows, f"{xmin}:{xmax}:{','.join(map(str, running))}").column("__tx_index").to_pylist()
    assert kept == [n for n, seen in enumerate(visible) if not seen]


def test_a_row_without_an_xid_is_kept() -> None:
    rows = table({**change("t", 1, 0), "__xid": None}, change("t", 1, 1, xid=5))
    assert invisible(rows, "10:10:").column("__tx_index").to_pylist() == [0]


def test_a_text_that_is_no_snapshot() -> None:
    with pytest.raises(LakeError, match="pg_snapshot"):
        invisible(table(drop(0, "a")), "12:now")
