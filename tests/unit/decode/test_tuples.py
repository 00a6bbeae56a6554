import pickle

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.decode.pgoutput import decode_rows, parse_relation, relation_message, separated, tuples
from cdc_core.decode.pgoutput.tuples import chunk_bounds
from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.errors import NotUtf8Error, ProtocolError
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from tests.support import plain_pgoutput as plain
from tests.support.plain_pgoutput import UNCHANGED
from tests.unit.decode.streams import ORDERS, announced, sort, transaction

OID = ORDERS.oid


def raw(*payloads):
    return sort(transaction(*payloads), announced()).runs[0].raw


def test_an_empty_batch_has_empty_columns():
    batch = decode_rows(_empty(), ORDERS)
    assert len(batch.op) == 0
    assert [len(column) for column in (*batch.new.text, *batch.old.text)] == [0] * 4


def _empty():
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in RAW_SCHEMA], schema=RAW_SCHEMA)


def test_every_shape_in_one_batch():
    batch = decode_rows(
        raw(
            plain.insert(OID, ["1", ""]),
            plain.update(OID, ["1", UNCHANGED]),
            plain.update(OID, ["2", UNCHANGED], ["1", None], "K"),
            plain.update(OID, ["2", UNCHANGED], ["2", "long ago"], "O"),
            plain.delete(OID, ["2", None], "K"),
            plain.delete(OID, ["3", "x"], "O"),
        ),
        ORDERS,
    )
    assert bytes(batch.op) == b"IUUUDD"
    assert bytes(batch.old_kind) == b"\0\0KOKO"
    assert batch.new.names == batch.old.names == ("id", "note")
    assert batch.new.text[0].to_pylist() == ["1", "1", "2", "2", None, None]
    assert batch.new.text[1].to_pylist() == ["", None, None, None, None, None]
    assert batch.new.unchanged[0] is None
    assert batch.new.unchanged[1].tolist() == [False, True, True, True, False, False]
    assert batch.old.text[0].to_pylist() == [None, None, "1", "2", "2", "3"]
    assert batch.old.text[1].to_pylist() == [None, None, None, "long ago", None, "x"]
    assert batch.old.unchanged == (None, None)


@pytest.mark.parametrize("payload", [plain.insert(OID, ["1", "x"]), plain.delete(OID, ["1", "x"], "O")])
def test_a_tuple_that_no_row_has_is_null_throughout(payload):
    batch = decode_rows(raw(payload, payload), ORDERS)
    absent, present = (batch.old, batch.new) if bytes(batch.op) == b"II" else (batch.new, batch.old)
    assert [column.to_pylist() for column in absent.text] == [[None, None], [None, None]]
    assert [column.to_pylist() for column in present.text] == [["1", "1"], ["x", "x"]]


def test_a_slice_of_a_batch_decodes_as_its_rows():
    payloads = [plain.insert(OID, [str(number), None if number % 2 else f"é{number}"]) for number in range(20)]
    whole = raw(*payloads)
    batch = decode_rows(whole.slice(5, 7), ORDERS)
    assert batch.new.text[0].to_pylist() == [str(number) for number in range(5, 12)]
    assert batch.new.text[1].to_pylist() == [None if number % 2 else f"é{number}" for number in range(5, 12)]


def test_a_relation_without_columns():
    nothing = Relation(OID, "shop", "orders", ReplicaIdentity.DEFAULT, ())
    batch = decode_rows(raw(plain.insert(OID, []), plain.insert(OID, [])), nothing)
    assert bytes(batch.op) == b"II"
    assert batch.new.text == ()


def test_rows_of_another_relation_are_refused():
    other = Relation(OID + 1, "shop", "orders", ORDERS.identity, ORDERS.columns)
    with pytest.raises(ProtocolError, match="another relation"):
        decode_rows(raw(plain.insert(OID, ["1", "x"])), other)


def test_the_bad_row_is_found_in_a_later_chunk(monkeypatch):
    monkeypatch.setattr(tuples, "CHUNK_ROWS", 3)
    good = plain.insert(OID, ["1", "é"])
    with pytest.raises(NotUtf8Error) as caught:
        decode_rows(raw(*[good] * 7, plain.insert(OID, ["1", b"\xff"]), good), ORDERS)
    assert caught.value.lsn == 108
    assert (caught.value.table, caught.value.column) == ("shop.orders", "note")


def test_values_that_are_only_utf8_together_are_refused():
    # Each half of an é ends one value and starts the next: the column's bytes as a whole would be valid.
    with pytest.raises(NotUtf8Error):
        decode_rows(raw(plain.insert(OID, ["1", b"\xc3"]), plain.insert(OID, ["2", b"\xa9"])), ORDERS)


def test_messages_that_are_not_utf8_are_separated_from_the_others():
    good, bad = plain.insert(OID, ["1", "é"]), plain.insert(OID, ["1", b"\xff"])
    both_bad = plain.insert(OID, [b"\xc3", b"\xa9"])
    whole = raw(good, bad, good, good, both_bad, bad, good)
    kept, refused, error = separated(whole, ORDERS)
    assert kept.column("lsn").to_pylist() == [whole.column("lsn")[at].as_py() for at in (0, 2, 3, 6)]
    assert refused.column("lsn").to_pylist() == [whole.column("lsn")[at].as_py() for at in (1, 4, 5)]
    assert error is not None and error.lsn == refused.column("lsn")[0].as_py() and error.column == "note"
    assert separated(kept, ORDERS)[1:] == (refused.slice(0, 0), None)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_chunks_are_bounded_by_rows_and_bytes():
    offsets = np.array([0, 10, 20, 30, 500, 510, 520])
    assert list(chunk_bounds(offsets, 2, 1000)) == [(0, 2), (2, 4), (4, 6)]
    assert list(chunk_bounds(offsets, 100, 30)) == [(0, 3), (3, 4), (4, 6)]
    assert list(chunk_bounds(offsets[:1], 100, 30)) == []


def test_relations_travel_as_their_message():
    wide = Relation(
        2**32 - 1,
        "pg_catalog",
        'Wé "ird',
        ReplicaIdentity.INDEX,
        (RelationColumn("å.1", 2**32 - 1, 655_366, True),) * 300,
    )
    for relation in (ORDERS, wide):
        assert parse_relation(relation_message(relation)) == relation
        assert parse_relation(plain.relation_message(relation)) == relation


@pytest.mark.parametrize("change", [(b"f\0\2", b"x\0\2"), (b"orders", b"order\xff"), (b"R", b"I")])
def test_a_wrong_relation_message_is_a_typed_error(change):
    with pytest.raises(ProtocolError):
        parse_relation(plain.relation_message(ORDERS).replace(*change, 1))
