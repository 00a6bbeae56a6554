"""What waits behind refused changes and what supersedes them, case by case."""

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.reduce.deferred_changes import REMOVAL, UPSERT, defer
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.spark import change, change_schema, lake_schema, row_type

ROW = row_type(k=pa.string(), v=pa.int64(), t=pa.string())
TABLE = TableSchema(TableId("public", "t"), 1, (Column("k", PgType(25, "text")),), primary_key=("k",))
BOTH = UPSERT | REMOVAL


def new(k, v=1, t="t"):
    return {"k": k, "v": v, "t": t, "__rescued": None}


def ins(k, **more):
    return ("c", None, new(k, **more), ())


def upd(k, **more):
    return ("u", None, new(k, **more), ())


def part(k):
    return ("u", None, new(k, t=None), ("t",))


def move(a, b, unsent=()):
    return ("u", new(a), new(b, t=None if unsent else "t"), unsent)


def gone(k):
    return ("d", new(k), None, ())


def held(*events, refused, key=("k",), effects=None):
    rows = [change(op, 100 + n, 0, before, after, unsent) for n, (op, before, after, unsent) in enumerate(events)]
    table = pa.Table.from_pylist(rows, schema=change_schema(ROW))
    mask = np.array([n in refused for n in range(len(rows))])
    bits = np.full(len(rows), BOTH, dtype=np.int8) if effects is None else np.array(effects, dtype=np.int8)
    return defer(table, mask, bits, key, lake_schema(ROW))


def told(found):
    """The operations that go in, with the key that each is of and its place."""
    return [
        (row["__op"], (row["after"] or row["before"])["k"], row["__commit_lsn"] - 100) for row in found.rows.to_pylist()
    ]


@pytest.mark.parametrize(
    ("events", "refused", "goes_in", "effects"),
    [
        # A complete image, an insert and a delete supersede; what leaves columns out waits.
        ([upd("a"), upd("a")], {0}, [("u", "a", 1)], [0, 0]),
        ([upd("a"), part("a")], {0}, [], [UPSERT, UPSERT]),
        ([upd("a"), part("a"), upd("a")], {0}, [("u", "a", 2)], [0, 0, 0]),
        ([upd("a"), part("a"), gone("a")], {0}, [("d", "a", 2)], [0, 0, 0]),
        ([upd("a"), part("b")], {0}, [("u", "b", 1)], [UPSERT, 0]),
        # The delete that did not go in is made up for, so that the insert finds no row.
        ([gone("a"), ins("a")], {0}, [("d", "a", 0), ("c", "a", 1)], [0, 0]),
        ([gone("a"), ins("b")], {0}, [("c", "b", 1)], [REMOVAL, 0]),
        # A key that changes waits at both keys.
        ([move("a", "b"), part("b")], {0}, [], [BOTH, UPSERT]),
        ([move("a", "b"), upd("b")], {0}, [("d", "a", 0), ("u", "b", 1)], [0, 0]),
        ([move("a", "b"), gone("b")], {0}, [("d", "a", 0), ("d", "b", 1)], [0, 0]),
        ([move("a", "b"), ins("a")], {0}, [("d", "a", 0), ("c", "a", 1)], [UPSERT, 0]),
        # Nothing takes the lake's row away that something which waits needs.
        ([move("a", "b", ("t",)), ins("a")], {0}, [], [BOTH, UPSERT]),
        ([move("a", "b", ("t",)), upd("b"), ins("a")], {0}, [("d", "a", 0), ("u", "b", 1), ("c", "a", 2)], [0, 0, 0]),
        ([upd("a"), move("a", "b", ("t",))], {0}, [], [UPSERT, BOTH]),
        ([upd("a"), move("a", "b")], {0}, [("u", "b", 1)], [0, 0]),
        ([move("a", "b"), move("b", "c")], {0}, [("d", "a", 0), ("u", "c", 1)], [0, 0]),
        # Another row came to the key meanwhile, refused too: the key's old row goes, that one waits.
        ([move("a", "b"), ins("a"), upd("b")], {0, 1}, [("d", "a", 0), ("u", "b", 2)], [0, UPSERT, 0]),
        ([ins("a"), ("t", None, None, ())], {0}, [("t", None, 1)], [0, 0]),
    ],
)
def test_what_goes_in_and_what_waits(events, refused, goes_in, effects):
    found = held(*events, refused=refused)
    if goes_in and goes_in[0][0] == "t":
        assert found.rows.column("__op").to_pylist() == ["t"]
    else:
        assert told(found) == goes_in
    assert found.effects.tolist() == effects


def test_an_insert_after_a_refused_delete_is_not_merely_appended():
    found = held(gone("a"), ins("a"), refused={0})
    assert isinstance(prepare(found.rows, TABLE, lake_schema(ROW)), KeyedChanges)


def test_half_of_a_change_that_is_let_in_later():
    assert told(held(move("a", "b"), refused=(), effects=[UPSERT])) == [("c", "b", 0)]
    assert told(held(move("a", "b"), refused=(), effects=[REMOVAL])) == [("d", "a", 0)]


def test_without_a_key_what_waits_and_goes_cancels_out():
    found = held(ins("a"), gone("a"), refused={0}, key=())
    assert (told(found), found.effects.tolist()) == ([], [0, 0])
    found = held(move("a", "b"), move("b", "c"), refused={0}, key=())
    assert (told(found), found.effects.tolist()) == ([("d", "a", 0), ("c", "c", 1)], [0, 0])
    found = held(ins("a"), move("a", "b"), gone("b"), refused={0, 1}, key=())
    assert (told(found), found.effects.tolist()) == ([], [0, 0, 0])
    found = held(ins("a"), gone("b"), refused={0}, key=())
    assert (told(found), found.effects.tolist()) == ([("d", "b", 1)], [UPSERT, 0])
