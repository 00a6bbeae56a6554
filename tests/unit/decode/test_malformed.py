"""Every message, cut at every offset, lengthened, or with a byte changed: one typed error or a valid reading."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.decode.pgoutput import decode_rows, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.errors import NotUtf8Error, ProtocolError
from tests.support import plain_pgoutput as plain
from tests.support.plain_pgoutput import UNCHANGED
from tests.support.sampling import examples
from tests.unit.decode.streams import CLIENTS, ORDERS, TIME_US, announced, table_of

OID = ORDERS.oid
BEFORE = [plain.begin(1000, TIME_US, 7)]
MESSAGES = {
    "begin": ([], plain.begin(1000, TIME_US, 7)),
    "commit": (BEFORE, plain.commit(1000, 1048, TIME_US)),
    "origin": (BEFORE, plain.origin(77, "elsewhere")),
    "relation": (BEFORE, plain.relation_message(ORDERS)),
    "type": (BEFORE, plain.type_message(9, "public", "mood")),
    "insert": (BEFORE, plain.insert(OID, ["12", "text"])),
    "insert with a null": (BEFORE, plain.insert(OID, ["12", None])),
    "update": (BEFORE, plain.update(OID, ["12", UNCHANGED])),
    "update with a key": (BEFORE, plain.update(OID, ["12", UNCHANGED], ["1", None], "K")),
    "update with an old row": (BEFORE, plain.update(OID, ["12", "new"], ["1", "old"], "O")),
    "delete by key": (BEFORE, plain.delete(OID, ["1", None], "K")),
    "delete with an old row": (BEFORE, plain.delete(OID, ["1", "old"], "O")),
    "truncate": (BEFORE, plain.truncate([OID, CLIENTS.oid], 1)),
    "message": (BEFORE, plain.message(5, "prefix", b"content", True)),
    "standalone message": ([], plain.message(5, "prefix", b"content", False)),
}
CUTS = [
    pytest.param(before, payload, cut, id=f"{name}-{cut}")
    for name, (before, payload) in MESSAGES.items()
    for cut in range(len(payload))
]
NEIGHBOUR = plain.insert(OID, ["3", "a neighbour whose bytes must not be taken for the missing ones"])


def read(payloads: list[bytes]) -> None:
    """Sort and decode; the state must survive an error unchanged."""
    state = announced()
    kept = pickle.dumps(state)
    frames = [plain.frame(payload, 100 + index) for index, payload in enumerate(payloads)]
    try:
        found = sort_segment(Segment.of(frames), state, lambda relation, xid: table_of(relation))
    except (ProtocolError, NotUtf8Error):
        assert pickle.dumps(state) == kept
        raise
    for run in found.runs:
        decode_rows(run.raw, run.relation)


@pytest.mark.parametrize(("before", "payload"), MESSAGES.values(), ids=MESSAGES.keys())
def test_whole_messages_are_read(before, payload):
    read([*before, payload])


@pytest.mark.parametrize(("before", "payload", "cut"), CUTS)
def test_a_message_cut_anywhere_is_a_typed_error(before, payload, cut):
    for behind in ([], [NEIGHBOUR] if before else []):
        with pytest.raises(ProtocolError) as caught:
            read([*before, payload[:cut], *behind])
        assert caught.value.expected
        assert caught.value.actual
        assert caught.value.lsn == 100 + len(before)
        assert pickle.loads(pickle.dumps(caught.value)).lsn == caught.value.lsn


@pytest.mark.parametrize(("before", "payload"), MESSAGES.values(), ids=MESSAGES.keys())
def test_a_message_with_bytes_behind_it_is_a_typed_error(before, payload):
    for extra in (b"\0", b"t", bytes(64)):
        with pytest.raises(ProtocolError):
            read([*before, payload + extra])


@pytest.mark.parametrize("name", ["insert", "update with an old row", "delete by key"])
def test_the_error_names_relation_and_lsn_of_the_bad_row(name):
    before, payload = MESSAGES[name]
    with pytest.raises(ProtocolError) as caught:
        read([*before, NEIGHBOUR, NEIGHBOUR, payload[:-1], NEIGHBOUR])
    assert caught.value.relation.startswith("shop.orders")
    assert caught.value.lsn == 103
    assert "text" not in str(caught.value).split("expected")[0]


def test_a_length_beyond_any_buffer_is_a_typed_error():
    payload = plain.insert(OID, ["12", "text"]).replace(b"\0\0\0\4text", b"\xff\xff\xff\xfftext")
    with pytest.raises(ProtocolError):
        read([*BEFORE, payload, NEIGHBOUR])


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (plain.insert(OID, ["1", "x"]).replace(b"t\0\0\0\1x", b"b\0\0\0\1x"), "a binary value (kind b)"),
        (plain.insert(OID, ["1", "x"]).replace(b"t\0\0\0\1x", b"z\0\0\0\1x"), "another kind"),
        (plain.insert(OID, ["1"]), "another number"),
        (plain.insert(OID, ["1", "2", "3"]), "another number"),
        (plain.insert(OID, ["1", "x"]).replace(b"N", b"K", 1), "another mark"),
        (plain.delete(OID, ["1", "x"]).replace(b"K", b"N", 1), "another mark"),
        (plain.update(OID, ["1", "x"], ["1", "y"]).replace(b"N", b"O", 1), "something else"),
    ],
)
def test_wrong_tuples_are_named(payload, words):
    with pytest.raises(ProtocolError) as caught:
        read([*BEFORE, NEIGHBOUR, payload, NEIGHBOUR])
    assert caught.value.actual == words
    assert caught.value.lsn == 102


@settings(max_examples=examples(300))
@given(st.sampled_from(sorted(MESSAGES)), st.data())
def test_any_changed_byte_gives_a_reading_or_a_typed_error(name, data):
    before, payload = MESSAGES[name]
    changed = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        read([*before, bytes(changed), *([NEIGHBOUR] if before else [])])
    except NotUtf8Error as error:
        assert error.column
    except ProtocolError as error:
        assert error.expected != error.actual


@settings(max_examples=examples(200))
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_give_a_reading_or_a_typed_error(payloads):
    try:
        read(payloads)
    except NotUtf8Error as error:
        assert error.column
    except ProtocolError as error:
        assert error.expected != error.actual
