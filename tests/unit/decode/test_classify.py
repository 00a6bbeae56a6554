import pickle

import numpy as np
import pytest

from cdc_core.decode.pgoutput import StreamState, decode_rows, sort_segment
from cdc_core.decode.raw_batch import RAW_SCHEMA
from cdc_core.decode.segment import Segment
from cdc_core.errors import ProtocolError
from cdc_core.schema.relation import Relation, RelationColumn
from tests.support import plain_pgoutput as plain
from tests.unit.decode.streams import CLIENTS, ORDERS, TIME_US, announced, sort, table_of, transaction


def column(segment, name, run=0):
    return segment.runs[run].raw.column(name).to_pylist()


def test_an_empty_segment_changes_nothing():
    state = announced()
    before = pickle.dumps(state)
    found = sort_segment(Segment(b"", np.zeros(0, dtype=np.int64)), state, lambda relation, xid: None)
    assert (found.runs, found.truncates, found.messages, found.frames) == ([], [], [], 0)
    assert found.last_commit_end_lsn is None
    assert pickle.dumps(state) == before


def test_a_bytearray_is_read_in_place_and_can_grow_again_afterwards():
    frames = [plain.frame(payload, 5) for payload in transaction(plain.relation_message(ORDERS))]
    buffer = bytearray(b"".join(frames))
    sort_segment(Segment(buffer, Segment.of(frames).ends), StreamState(), lambda relation, xid: None)
    buffer.extend(b"the next segment")


def test_rows_carry_the_facts_of_their_transaction():
    state = announced()
    found = sort(
        [
            *transaction(
                plain.insert(ORDERS.oid, ["1", "a"]), plain.insert(ORDERS.oid, ["2", "b"]), commit_lsn=2000, xid=8
            ),
            *transaction(plain.insert(ORDERS.oid, ["3", "c"]), commit_lsn=3000, xid=2**32 - 1),
        ],
        state,
    )
    assert found.runs[0].raw.schema == RAW_SCHEMA
    assert column(found, "lsn") == [101, 102, 105]
    assert column(found, "seq") == [5, 6, 9]
    assert column(found, "commit_lsn") == [2000, 2000, 3000]
    assert column(found, "tx_index") == [0, 1, 0]
    assert column(found, "prior_end_lsn") == [1048, 1048, 2048]
    assert column(found, "xid") == [8, 8, 2**32 - 1]
    assert column(found, "commit_ts_us") == [TIME_US] * 3
    assert (found.last_commit_lsn, found.last_commit_end_lsn) == (3000, 3048)
    assert not found.open_transaction


def test_the_first_transaction_of_a_stream_has_no_prior_end():
    found = sort(transaction(plain.relation_message(ORDERS), plain.insert(ORDERS.oid, ["1", "a"])))
    assert column(found, "prior_end_lsn") == [0]


def test_rows_of_tables_not_captured_are_dropped_but_counted():
    state = StreamState()
    payloads = transaction(
        plain.relation_message(ORDERS),
        plain.relation_message(CLIENTS),
        plain.insert(CLIENTS.oid, ["1"]),
        plain.insert(ORDERS.oid, ["1", "a"]),
        plain.truncate([CLIENTS.oid]),
        plain.insert(ORDERS.oid, ["2", "b"]),
        plain.truncate([CLIENTS.oid, ORDERS.oid], 2),
    )
    found = sort(payloads, state, lambda relation, xid: table_of(relation) if relation == ORDERS else None)
    assert [run.relation for run in found.runs] == [ORDERS]
    assert column(found, "tx_index") == [1, 3]
    assert [(one.tx_index, [str(table.id) for table in one.tables], one.options) for one in found.truncates] == [
        (4, ["shop.orders"], 2)
    ]
    assert (found.row_messages, found.captured_rows) == (5, 2)


def test_a_relation_that_changes_mid_segment_starts_a_new_run():
    wider = Relation(
        ORDERS.oid, "shop", "orders", ORDERS.identity, (*ORDERS.columns, RelationColumn("x", 25, -1, False))
    )
    found = sort(
        transaction(
            plain.relation_message(ORDERS),
            plain.insert(ORDERS.oid, ["1", "a"]),
            plain.relation_message(wider),
            plain.insert(ORDERS.oid, ["2", "b", "c"]),
            plain.relation_message(wider),
            plain.insert(ORDERS.oid, ["3", "b", "c"]),
        )
    )
    assert [run.relation for run in found.runs] == [ORDERS, wider]
    assert [column(found, "tx_index", run) for run in (0, 1)] == [[0], [1, 2]]
    assert decode_rows(found.runs[1].raw, wider).new.text[2].to_pylist() == ["c", "c"]


def test_a_new_version_of_the_table_starts_a_new_run_even_when_the_relation_is_the_same():
    versions = iter([table_of(ORDERS), table_of(CLIENTS)])
    payloads = [plain.relation_message(ORDERS), plain.insert(ORDERS.oid, ["1", "a"])] * 2
    found = sort(transaction(*payloads), describe=lambda relation, xid: next(versions))
    assert [run.table.id.table for run in found.runs] == ["orders", "clients"]


def test_relations_are_described_in_order_with_the_transaction_that_sent_them():
    asked, state = [], StreamState()
    frames = [
        plain.frame(plain.begin(1000, TIME_US, 1), 900),
        plain.frame(plain.relation_message(ORDERS), 0),
        plain.frame(plain.relation_message(CLIENTS), 0),
    ]
    sort_segment(Segment.of(frames), state, lambda relation, xid: asked.append((relation, xid)))
    later = [plain.frame(plain.relation_message(CLIENTS), 0)]
    sort_segment(Segment.of(later), state, lambda relation, xid: asked.append((relation, xid)))
    assert asked == [(ORDERS, 1), (CLIENTS, 1), (CLIENTS, 1)], "also of a transaction that another segment began"


def test_an_origin_holds_until_its_transaction_ends():
    state = announced()
    row = plain.insert(ORDERS.oid, ["1", "a"])
    found = sort([*transaction(plain.origin(77, "other"), row), *transaction(row)], state)
    assert column(found, "origin") == ["other", None]
    assert column(found, "origin_lsn") == [77, None]
    assert sort(transaction(row), state).runs[0].raw.column("origin").null_count == 1


def test_a_transaction_cut_by_segments_is_one_transaction():
    state = announced()
    row = plain.insert(ORDERS.oid, ["1", "a"])
    payloads = transaction(plain.origin(77, "other"), row, row, row, commit_lsn=5000)
    indices = []
    for index, payload in enumerate(payloads):
        state = pickle.loads(pickle.dumps(state))
        found = sort([payload], state)
        assert found.open_transaction == (index < len(payloads) - 1)
        if found.runs:
            indices += column(found, "tx_index")
            assert column(found, "commit_lsn") == [5000]
            assert column(found, "origin") == ["other"]
    assert indices == [0, 1, 2]
    assert state.open is None
    assert state.prior_end_lsn == 5048


def test_messages_know_whether_a_transaction_holds_them():
    state = announced()
    found = sort(
        [
            plain.message(9, "audit", b"\x00\xff", False),
            *transaction(
                plain.insert(ORDERS.oid, ["1", "a"]),
                plain.message(9, "audit", b"", True),
                plain.insert(ORDERS.oid, ["1", "a"]),
                commit_lsn=5000,
                xid=9,
            ),
        ],
        state,
    )
    outside, inside = found.messages
    assert (outside.transactional, outside.content, outside.xid, outside.commit_lsn) == (False, b"\x00\xff", None, None)
    assert (outside.lsn, outside.prior_end_lsn, outside.commit_ts_us) == (100, 100, TIME_US)
    assert (inside.transactional, inside.xid, inside.commit_lsn, inside.tx_index) == (True, 9, 5000, 1)
    assert inside.prior_end_lsn == 100
    assert column(found, "prior_end_lsn") == [100, 100]
    assert column(found, "tx_index") == [0, 1]


def test_after_a_reconnect_only_the_progress_is_kept():
    state = announced()
    sort([plain.begin(5000, TIME_US, 9)], state)
    again = state.after_reconnect()
    assert (again.open, again.relations) == (None, {})
    assert (again.prior_end_lsn, again.next_seq) == (state.prior_end_lsn, state.next_seq)


def test_a_run_is_cut_where_its_bytes_would_not_fit_one_array():
    state = announced()
    row = plain.insert(ORDERS.oid, ["1", "a" * 100])
    frames = [plain.frame(payload, 5) for payload in transaction(*[row] * 10)]
    found = sort_segment(Segment.of(frames), state, lambda relation, xid: None, max_bytes=3 * len(frames[1]))
    assert [run.raw.num_rows for run in found.runs] == [3, 3, 3, 1]
    assert [index for run in found.runs for index in run.raw.column("tx_index").to_pylist()] == list(range(10))


@pytest.mark.parametrize(
    ("payloads", "expected"),
    [
        ([plain.insert(ORDERS.oid, ["1", "a"])], "inside a transaction"),
        ([plain.truncate([ORDERS.oid])], "inside a transaction"),
        ([plain.origin(1, "x")], "inside a transaction"),
        ([plain.message(1, "p", b"", True)], "inside a transaction"),
        ([plain.commit(1, 2, TIME_US)], "a Begin before the Commit"),
        ([*transaction(), plain.insert(ORDERS.oid, ["1", "a"])], "inside a transaction"),
        ([*transaction(), plain.commit(1000, 2, TIME_US)], "a Begin before the Commit"),
        ([plain.begin(1, TIME_US, 1), plain.begin(2, TIME_US, 2)], "a Commit before the next Begin"),
        ([plain.begin(1, TIME_US, 1), plain.commit(2, 3, TIME_US)], "the LSN its Begin announced"),
        (transaction(plain.insert(4711, ["1"])), "a Relation message before its rows"),
        (transaction(plain.delete(1, ["1"])), "a Relation message before its rows"),
        (transaction(plain.truncate([ORDERS.oid, 4711])), "a Relation message before its rows"),
        ([b"S\0\0\0\0"], "kind B, C, O, R, Y, I, U, D, T or M"),
        ([b"\0"], "kind B, C, O, R, Y, I, U, D, T or M"),
    ],
)
def test_impossible_orders_and_kinds_are_refused_and_leave_the_state(payloads, expected):
    state = announced()
    before = pickle.dumps(state)
    with pytest.raises(ProtocolError) as caught:
        sort(payloads, state)
    assert expected in caught.value.expected
    assert caught.value.lsn is not None
    assert pickle.dumps(state) == before


def test_a_row_before_its_relation_is_refused_even_when_the_relation_follows():
    with pytest.raises(ProtocolError, match="a Relation message before its rows"):
        sort(transaction(plain.insert(ORDERS.oid, ["1", "a"]), plain.relation_message(ORDERS)))


@pytest.mark.parametrize("ends", [[3], [25], [30, 29], [30, 60, 1000]])
def test_frames_that_are_no_frames_are_refused(ends):
    with pytest.raises(ProtocolError):
        sort_segment(Segment(b"w" * 60, np.array(ends, dtype=np.int64)), StreamState(), lambda relation, xid: None)


def test_a_keepalive_is_not_a_frame():
    with pytest.raises(ProtocolError, match="XLogData"):
        sort_segment(Segment.of([b"k" + bytes(40)]), StreamState(), lambda relation, xid: None)


def test_a_message_larger_than_the_bound_is_a_run_of_its_own():
    row = plain.insert(ORDERS.oid, ["1", "a"])
    frames = [plain.frame(payload, 5) for payload in transaction(*[row] * 3)]
    found = sort_segment(Segment.of(frames), announced(), lambda relation, xid: None, max_bytes=1)
    assert [run.raw.num_rows for run in found.runs] == [1, 1, 1]
