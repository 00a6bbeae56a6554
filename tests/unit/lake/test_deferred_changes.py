"""What waits behind refused changes and what supersedes them, case by case."""

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.apply.keyed import KeyedChanges
from cdc_core.lake.reduce.deferred_changes import defer
from cdc_core.lake.reduce.key_changes import Apart
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.spark import change, change_schema, lake_schema, row_type

ROW = row_type(k=pa.string(), v=pa.int64(), t=pa.string())
TABLE = TableSchema(TableId("public", "t"), 1, (Column("k", PgType(25, "text")),), primary_key=("k",))


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


def held(*events, refused, key=("k",)):
    """What becomes of events, of which some are refused; ``waits`` are those that wait."""
    rows = [change(op, 100 + n, 0, before, after, unsent) for n, (op, before, after, unsent) in enumerate(events)]
    table = pa.Table.from_pylist(rows, schema=change_schema(ROW))
    divided = Apart.of(table, key, lake_schema(ROW)).joined(table)
    mask = np.array([at - 100 in refused for at in divided.column("__commit_lsn").to_pylist()])
    # The old row of a key change is not there any more, whether its new one is refused or not.
    mask &= ~np.isin(divided.column("__op").to_pylist(), ["d"]) | np.isin(
        divided.column("__commit_lsn").to_numpy() - 100, [n for n, one in enumerate(events) if one[0] == "d"]
    )
    found = defer(divided, mask, key, lake_schema(ROW))
    assert not (found.waits & found.applied).any()
    return found, sorted(set((divided.column("__commit_lsn").to_numpy()[found.waits] - 100).tolist()))


def told(found):
    """The operations that go in, with the key that each is of and its place."""
    return [
        (row["__op"], (row["after"] or row["before"])["k"], row["__commit_lsn"] - 100) for row in found.rows.to_pylist()
    ]


@pytest.mark.parametrize(
    ("events", "refused", "goes_in", "waits"),
    [
        # A complete image, an insert and a delete supersede; what leaves columns out waits.
        ([upd("a"), upd("a")], {0}, [("u", "a", 1)], []),
        ([upd("a"), part("a")], {0}, [], [0, 1]),
        ([upd("a"), part("a"), upd("a")], {0}, [("u", "a", 2)], []),
        ([upd("a"), part("a"), gone("a")], {0}, [("d", "a", 2)], []),
        ([upd("a"), part("b")], {0}, [("u", "b", 1)], [0]),
        # The delete that did not go in is made up for, so that the insert finds no row.
        ([gone("a"), ins("a")], {0}, [("d", "a", 0), ("c", "a", 1)], []),
        ([gone("a"), ins("b")], {0}, [("c", "b", 1)], [0]),
        # A row that changes its key leaves the old one, and waits at the new one.
        ([move("a", "b"), part("b")], {0}, [("d", "a", 0)], [0, 1]),
        ([move("a", "b"), upd("b")], {0}, [("d", "a", 0), ("u", "b", 1)], []),
        ([move("a", "b"), gone("b")], {0}, [("d", "a", 0), ("d", "b", 1)], []),
        ([move("a", "b"), ins("a")], {0}, [("d", "a", 0), ("c", "a", 1)], [0]),
        ([upd("a"), move("a", "b")], {0}, [("d", "a", 1), ("c", "b", 1)], []),
        ([move("a", "b"), move("b", "c")], {0}, [("d", "a", 0), ("d", "b", 1), ("c", "c", 1)], []),
        ([move("a", "b"), ins("a"), upd("b")], {0, 1}, [("d", "a", 0), ("u", "b", 2)], [1]),
        # Nothing takes the lake's row away that something which waits needs.
        ([move("a", "b", ("t",)), ins("a")], {0}, [], [0, 1]),
        ([move("a", "b", ("t",)), part("b")], {0}, [], [0, 1]),
        ([move("a", "b", ("t",)), upd("b"), ins("a")], {0}, [("d", "a", 0), ("u", "b", 1), ("c", "a", 2)], []),
        ([upd("a"), move("a", "b", ("t",))], {0}, [], [0, 1]),
        # What came to its key since leaves without a trace; the row goes once the change is superseded.
        ([move("a", "b", ("t",)), ins("a"), gone("a")], {0}, [], [0]),
        ([move("a", "b", ("t",)), ins("a"), move("a", "c")], {0}, [("c", "c", 2)], [0]),
        ([move("a", "b", ("t",)), ins("a"), gone("a"), gone("b")], {0}, [("d", "a", 0), ("d", "b", 3)], []),
        # The row of a key that two changes need, one after the other, and the same row come back.
        ([move("a", "b", ("t",)), ins("a"), move("a", "c", ("t",)), gone("c")], {0}, [("d", "c", 3)], [0]),
        (
            [move("a", "b", ("t",)), move("b", "a", ("t",)), gone("a")],
            {0},
            [("d", "a", 0), ("d", "b", 1)],
            [],
        ),
        ([ins("a"), ("t", None, None, ())], {0}, [("t", None, 1)], []),
    ],
)
def test_what_goes_in_and_what_waits(events, refused, goes_in, waits):
    found, waiting = held(*events, refused=refused)
    if goes_in and goes_in[0][0] == "t":
        assert found.rows.column("__op").to_pylist() == ["t"]
    else:
        assert told(found) == goes_in
    assert waiting == waits


def test_an_insert_after_a_refused_delete_is_not_merely_appended():
    found, _ = held(gone("a"), ins("a"), refused={0})
    assert isinstance(prepare(found.rows, TABLE, lake_schema(ROW)), KeyedChanges)


def test_without_a_key_what_waits_and_goes_cancels_out():
    found, waits = held(ins("a"), gone("a"), refused={0}, key=())
    assert (told(found), waits) == ([], [])
    found, waits = held(move("a", "b"), move("b", "c"), refused={0}, key=())
    assert (told(found), waits) == ([("d", "a", 0), ("c", "c", 1)], [])
    found, waits = held(ins("a"), move("a", "b"), gone("b"), refused={0, 1}, key=())
    assert (told(found), waits) == ([], [])
    found, waits = held(ins("a"), gone("b"), refused={0}, key=())
    assert (told(found), waits) == ([("d", "b", 1)], [0])
