import pytest

from cdc_core.decode import copy_text
from cdc_core.decode.copy_text import LineCutter, decode_copy
from cdc_core.errors import NotUtf8Error, ProtocolError


def rows(data, width=2):
    columns = decode_copy(data, tuple(f"c{index}" for index in range(width)))
    return list(zip(*(column.to_pylist() for column in columns.text), strict=True))


def test_no_lines_are_no_rows():
    columns = decode_copy(b"", ("a", "b"))
    assert [len(column) for column in columns.text] == [0, 0]
    assert len(columns) == 0


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_fields_and_lines(wrap):
    assert rows(wrap(b"1\tone\n2\tzwei \xc3\xa9\n")) == [("1", "one"), ("2", "zwei é")]


def test_null_is_not_the_empty_string_nor_the_letters():
    assert rows(b"\\N\t\n\\\\N\tN\n\\N\t\\N\n") == [(None, ""), ("\\N", "N"), (None, None)]


def test_nulls_alone_leave_no_bytes_behind():
    column = decode_copy(b"\\N\n\\N\n", ("a",)).text[0]
    assert column.to_pylist() == [None, None]
    assert column.fill_null("").to_pylist() == ["", ""]


@pytest.mark.parametrize(
    ("escaped", "value"),
    [
        (rb"\b\f\n\r\t\v", "\b\f\n\r\t\v"),
        (rb"\\", "\\"),
        (rb"\\\\n", "\\\\n"),
        (rb"\\\n", "\\\n"),
        (rb"\\N", "\\N"),
        (rb"a\Nb", "aNb"),
        (rb"\N\N", "NN"),
        (rb"\q\"", 'q"'),
        (rb"\101\60\7", "A0\7"),
        (rb"\1234", "S4"),
        (rb"\x41\x4a\x4Az\x7", "AJJz\7"),
        (rb"\xg", "xg"),
        (rb"\\x41", "\\x41"),
        (rb"\\101", "\\101"),
        (rb"\303\251", "é"),
        (rb"\xC3\xa9", "é"),
        (rb"\.", "."),
    ],
)
def test_escapes(escaped, value):
    line = b"\\N\t" + escaped + b"\t\\\\\n"
    assert rows(line * 2 + b"x\ty\tz\n", 3) == [(None, value, "\\"), (None, value, "\\"), ("x", "y", "z")]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"1\n", "1"),
        (b"1\t2\t3\n", "3"),
        (b"1\t2\n\n", "1"),
        (b"1\t2\n1\t2\t3\n1\n", "3"),
        (b"1\t2", "a part of one"),
        (b"1\t2\n3", "a part of one"),
        (b"1\t2\\\n", "the field's end"),
        (b"1\\\t2\n", "the field's end"),
    ],
)
def test_what_is_no_copy_text_is_a_typed_error(data, found):
    with pytest.raises(ProtocolError) as caught:
        decode_copy(data, ("a", "b"), "shop.orders")
    assert caught.value.actual == found
    assert caught.value.relation.startswith("shop.orders")


@pytest.mark.parametrize(
    ("data", "column"), [(b"1\t\xc3\n", "b"), (b"\xc3\t\xa9\n", "a"), (b"1\t\\xff\n", "b"), (b"1\\t\t\xff\n", "b")]
)
def test_text_that_is_not_utf8_is_a_typed_error(data, column):
    with pytest.raises(NotUtf8Error) as caught:
        decode_copy(data, ("a", "b"), "shop.orders")
    assert (caught.value.table, caught.value.column) == ("shop.orders", column)


def test_a_table_without_columns_has_empty_lines():
    assert decode_copy(b"\n\n", ()).text == ()
    with pytest.raises(ProtocolError):
        decode_copy(b"x\n", ())


def test_lines_longer_than_a_chunk():
    long = "a\\tb" * 700_000
    assert rows(f"{long}\t1\n{long}\t2\n".encode()) == [("a\tb" * 700_000, "1"), ("a\tb" * 700_000, "2")]


def test_a_part_of_a_line_at_the_end_is_a_typed_error():
    cutter = LineCutter()
    assert cutter.feed(b"1\t2\n3") == b"1\t2\n"
    assert cutter.feed(b"4") == b""
    with pytest.raises(ProtocolError, match="2 bytes"):
        cutter.finish("shop.orders")
    assert cutter.feed(b"\n") == b"34\n"
    cutter.finish()


def test_large_lines_are_decoded_like_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    data = "".join(
        f"{number}\t{text}\t{chr(92)}N\n"
        for number, text in enumerate(["", "plain", r"\\x00ff", r"tab\tline\n\\", r"\101\x42", "é\\\\é"])
    ).encode()
    small = decode_copy(data, ("a", "b", "c"))
    monkeypatch.setattr(copy_text, "_LARGE_BYTES", 4)
    for few in (10_000, 0):
        monkeypatch.setattr(copy_text, "_FEW", few)
        large = decode_copy(data, ("a", "b", "c"))
        assert [each.to_pylist() for each in large.text] == [each.to_pylist() for each in small.text]
        # Line by line, so that some have no numeric escape.
        lines = [decode_copy(line, ("a", "b", "c")) for line in data.splitlines(keepends=True)]
        assert [line.text[1][0].as_py() for line in lines] == small.text[1].to_pylist()
