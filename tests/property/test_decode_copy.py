"""COPY text: what a server writes for any values comes back as those values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.decode import copy_text
from cdc_core.decode.copy_text import LineCutter, decode_copy
from tests.support.plain_pgoutput import copy_line, plain_copy

VALUES = st.one_of(
    st.none(),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10),
    st.text("\\\t\n\r\b\f\vNx07 ab.", max_size=8),
)


@st.composite
def tables(draw):
    width = draw(st.integers(1, 5))
    return width, draw(st.lists(st.lists(VALUES, min_size=width, max_size=width), max_size=12))


@given(tables(), st.sampled_from([1, 7, 40, 1 << 20]))
def test_values_come_back(table, chunk):
    width, rows = table
    data = b"".join(copy_line(row) for row in rows)
    assert plain_copy(data) == rows
    names = tuple(f"c{index}" for index in range(width))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_text, "CHUNK_BYTES", chunk)
        columns = decode_copy(data, names)
    assert columns.names == names
    assert columns.unchanged == (None,) * width
    for column in columns.text:
        column.validate(full=True)
    assert [list(row) for row in zip(*(column.to_pylist() for column in columns.text), strict=True)] == rows


@given(tables(), st.data())
def test_lines_cut_from_any_blocks_are_the_same_lines(table, data):
    whole = b"".join(copy_line(row) for row in table[1])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    cutter, out = LineCutter(), []
    for first, last in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        lines = cutter.feed(whole[first:last])
        assert lines == b"" or lines.endswith(b"\n")
        out.append(lines)
    cutter.finish()
    assert b"".join(out) == whole
