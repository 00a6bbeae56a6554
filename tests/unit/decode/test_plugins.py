"""Output plug-ins without a server: texts of values, JSON in bulk, kept transactions, messages that nobody sends."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.decode.decoderbufs import texts
from cdc_core.decode.decoderbufs.message import BEGIN, COMMIT, INSERT, RowMessage
from cdc_core.decode.decoderbufs.rows import table_of
from cdc_core.decode.held import HeldSegments
from cdc_core.decode.pgoutput import StreamState, decode_rows, sort_segment
from cdc_core.decode.plugin import SeenColumn
from cdc_core.decode.plugins import translator
from cdc_core.decode.segment import Segment
from cdc_core.decode.wal2json.json_bytes import JsonBytes, leaves, plain, unescaped
from cdc_core.decode.wire import Wire
from cdc_core.errors import ProtocolError
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema

ANY_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


class FixedRelations:
    """Every table is captured; its columns are those that are seen."""

    def is_captured(self, table: TableId) -> bool:
        return True

    def oid(self, table: TableId) -> int:
        return 77

    def named(self, name: str) -> list[TableId]:
        return [TableId("public", name)]

    def complete(self, table: TableId, columns: Sequence[SeenColumn]) -> Relation:
        found = tuple(RelationColumn(c.name, c.type_oid, -1, i == 0) for i, c in enumerate(columns))
        return Relation(77, table.schema, table.table, ReplicaIdentity.DEFAULT, found)

    extended = complete


def frame(lsn: int, message: bytes) -> bytes:
    return b"w" + struct.pack("!qqq", lsn, lsn, 0) + message


def decoderbufs(op: int, **fields: int) -> bytes:
    message = RowMessage(transaction_id=7, commit_time=1_790_000_000_000_000, op=op)
    if fields:
        message.table = 'public."T"'
        for name, value in fields.items():
            message.new_tuple.add(column_name=name, column_type=23, datum_int32=value)
            message.new_typeinfo.add(modifier="integer", value_optional=True)
    return bytes(message.SerializeToString())


def read(plugin: str, *segments: Segment) -> list[tuple[int, int, list[str]]]:
    """Commit LSN, index and first column of each row."""
    translated, state, out = translator(plugin, FixedRelations()), StreamState(), []
    for segment in segments:
        for each in translated.feed(segment):
            found = sort_segment(each, state, lambda r, lsn: TableSchema(TableId(r.namespace, r.name), r.oid, ()))
            for run in found.runs:
                text = decode_rows(run.raw, run.relation).new.text[0].to_pylist()
                places = (run.raw.column(name).to_pylist() for name in ("commit_lsn", "tx_index"))
                out += list(zip(*places, text, strict=True))
    assert not translated.is_open
    translated.close()
    return out


def test_a_transaction_of_decoderbufs_has_its_commits_position_wherever_segments_end() -> None:
    frames = [frame(100, decoderbufs(BEGIN)), *(frame(101 + i, decoderbufs(INSERT, id=i)) for i in range(3))]
    frames += [frame(500, decoderbufs(COMMIT)), frame(500, decoderbufs(BEGIN)), frame(501, decoderbufs(INSERT, id=9))]
    frames += [frame(600, decoderbufs(COMMIT))]
    expected = [(499, 0, "0"), (499, 1, "1"), (499, 2, "2"), (599, 0, "9")]
    assert read("decoderbufs", Segment.of(frames)) == expected
    for cut in range(1, len(frames)):
        assert read("decoderbufs", Segment.of(frames[:cut]), Segment.of(frames[cut:])) == expected
    assert read("decoderbufs", *(Segment.of([each]) for each in frames)) == expected


@pytest.mark.parametrize(
    "message", [b"\x01", b"\x08\x07", decoderbufs(INSERT, id=1)[:-3], decoderbufs(INSERT, id=1) + b"\x3a\x00", b"{}"]
)
def test_bytes_that_decoderbufs_does_not_send_are_an_error(message: bytes) -> None:
    frames = [frame(100, decoderbufs(BEGIN)), frame(101, message), frame(102, decoderbufs(COMMIT))]
    with pytest.raises(ProtocolError):
        read("decoderbufs", Segment.of(frames))


@pytest.mark.parametrize("message", [b"{}", b'{"action":"I"}', b'{"action":"X"', b'{"action":"I","schema":"a","tab'])
def test_text_that_wal2json_does_not_send_is_an_error(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        read("wal2json", Segment.of([frame(101, message)]))


def test_large_transactions_are_kept_in_a_file(tmp_path: object) -> None:
    held = HeldSegments(memory_bytes=100)
    segments = [Segment.of([bytes([n]) * 30, bytes([n]) * 40]) for n in range(9)]
    for segment in segments:
        held.add(segment)
    assert len(held) == 9
    taken = list(held.take())
    assert [bytes(each.buffer) for each in taken] == [bytes(each.buffer) for each in segments]
    assert [each.ends.tolist() for each in taken] == [[30, 70]] * 9
    assert len(held) == 0
    held.close()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_varints_are_read_as_protobuf_writes_them(numbers: list[int]) -> None:
    parts = []
    for number in numbers:
        row = RowMessage()
        row.new_tuple.add(column_type=number)
        parts.append(row.SerializeToString()[3:])  # without the tags and the length
    starts = np.cumsum([0, *map(len, parts[:-1])])
    wire = Wire(np.frombuffer(b"".join(parts), dtype=np.uint8))
    found, ends = wire.numbers(starts)
    assert found.tolist() == numbers
    assert ends.tolist() == np.cumsum(list(map(len, parts))).tolist()


@given(st.lists(ANY_TEXT, min_size=1))
def test_json_strings_are_unescaped(values: list[str]) -> None:
    written = [json.dumps(value, ensure_ascii=False) for value in values]
    found = unescaped(pa.array([text[1:-1].encode() for text in written], pa.binary()))
    assert [each.decode() for each in found.to_pylist()] == values
    data = JsonBytes(np.frombuffer("".join(written).encode(), dtype=np.uint8))
    starts = np.cumsum([0, *(len(text.encode()) for text in written[:-1])])
    values_found, behind = data.values(starts)
    assert [each.decode() for each in data.text(values_found, None).to_pylist()] == values
    assert behind[-1] == sum(len(text.encode()) for text in written)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | ANY_TEXT,
        lambda each: st.lists(each) | st.dictionaries(ANY_TEXT, each),
    )
)
def test_leaves_are_those_of_json(value: object) -> None:
    text = json.dumps({"a": value}, separators=(",", ":"), ensure_ascii=False).encode()

    def expected(each: object, path: tuple[object, ...]) -> list[tuple[object, ...]]:
        if isinstance(each, dict):
            return [leaf for key, inner in each.items() for leaf in expected(inner, (*path, key))]
        if isinstance(each, list):
            return [leaf for number, inner in enumerate(each) for leaf in expected(inner, (*path, number))]
        return [(path, each if isinstance(each, str) else json.dumps(each))]

    assert [(path, plain(text[start:end])) for path, start, end in leaves(text)] == expected({"a": value}, ())


@pytest.mark.parametrize(
    ("quoted", "names"),
    [
        ("public.t", ("public", "t")),
        ('"A b".t', ("A b", "t")),
        ('a."b.c"', ("a", "b.c")),
        ('"a""b"."c.""d"', ('a"b', 'c."d')),
    ],
)
def test_qualified_names_are_taken_apart(quoted: str, names: tuple[str, str]) -> None:
    assert table_of(quoted) == TableId(*names)


def test_values_are_the_servers_text() -> None:
    def text(convert: texts.TextOf, *values: float) -> list[str]:
        found: list[str] = convert(np.array(values)).to_pylist()
        return found

    assert text(texts.dates, 0, -719_163, 2_932_897) == ["1970-01-01", "0001-12-31 BC", "10000-01-01"]
    assert text(texts.dates, -2147472692, -2147472691) == ["infinity", "-infinity"]
    assert text(texts.timestamps, 1, 1_500_000, -62_135_596_800_000_001) == [
        "1970-01-01 00:00:00.000001",
        "1970-01-01 00:00:01.5",
        "0001-12-31 23:59:59.999999 BC",
    ]
    # The last timestamp of PostgreSQL wraps around in 64 bits.
    last = 9_223_371_331_199_999_999 + 946_684_800_000_000
    assert text(texts.zoned_timestamps, last - 2**64) == ["294276-12-31 23:59:59.999999+00"]
    assert text(texts.zoned_timestamps, 2**63 - 1, -(2**63)) == ["infinity", "-infinity"]
    assert text(texts.zoned_timestamps, -62_135_596_800_000_001) == ["0001-12-31 23:59:59.999999+00 BC"]
    assert text(texts.times, 86_400_000_000, 0, 10_000_000) == ["24:00:00", "00:00:00", "00:00:10"]
    assert text(texts.zoned_times, -3_600_000_000.0, 86_400_000_000.0) == ["23:00:00+00", "24:00:00+00"]
    assert text(texts.money, -1, 1234) == ["-0.01", "12.34"]
    assert text(texts.floats, 0.1, float("nan"), float("-inf")) == ["0.1", "NaN", "-Infinity"]
    assert texts.hexadecimal(pa.array([b"\x00\xff", b""])).to_pylist() == ["\\x00ff", "\\x"]
