"""Values cut, masked and hashed."""

import hashlib
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.selection.digests import DIGESTS
from cdc_core.selection.mappers import Hash, Mask, TruncateBytes, TruncateMapper, java_serialisation, modified_utf8
from tests.support.sampling import examples

TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12))
SALT = "CzQMA0cB5K"


def java_substring(text, length):
    """String.substring(0, n), without the half of a surrogate pair that it may leave."""
    return None if text is None else text.encode("utf-16-le")[: 2 * length].decode("utf-16-le", "ignore")


@settings(max_examples=examples(150), deadline=None)
@given(TEXTS, st.integers(0, 8))
def test_truncation_counts_as_java_does(texts, length):
    cut = TruncateMapper(length)(pa.array(texts, pa.string()))
    assert cut.to_pylist() == [java_substring(text, length) for text in texts]
    assert cut.type == pa.string()


def test_bytes_are_cut_by_bytes():
    values = pa.array([r"\xaabbcc", r"\xaa", r"\x", None])
    assert TruncateBytes(2)(values).to_pylist() == [r"\xaabb", r"\xaa", r"\x", None]


def test_a_mask_hides_nulls_too():
    assert Mask(3)(pa.array([None, "secret", ""])).to_pylist() == ["***"] * 3
    assert Mask(0)(pa.array([None, "secret"])).to_pylist() == ["", ""]


@pytest.mark.parametrize(
    ("serialised", "expected"),
    [
        (False, "c4bf2f9ebc99b7f64add45103e81eb4ca483649064e3e1398b21f41786360c7b"),
        (True, "b4d39ab0d198fb4cac8b2f023da74f670bcaf192dcc79b5d6361b7ae6b2fafdf"),
    ],
)
def test_hashes_are_those_of_java(serialised, expected):
    values = pa.array(["hello", None, "x", "hello"])
    hashed = Hash("SHA-256", SALT, serialised, 0)(values).to_pylist()
    assert hashed[0] == hashed[3] == expected
    assert hashed[1] is None
    assert hashed[2] != expected
    assert Hash("sha-256", SALT, serialised, 10)(values).to_pylist()[0] == expected[:10]


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS)
def test_a_hash_is_of_the_salt_and_the_text(texts):
    expected = [None if t is None else hashlib.sha512(b"pepper" + t.encode()).hexdigest() for t in texts]
    assert Hash("SHA-512", "pepper", False, 0)(pa.array(texts, pa.string())).to_pylist() == expected


@pytest.mark.parametrize("name", DIGESTS)
def test_every_digest_that_is_allowed_can_be_made(name):
    (digest,) = Hash(name, "s", False, 0)(pa.array(["x"])).to_pylist()
    assert len(digest) >= 32


def test_java_writes_strings_in_its_own_utf8():
    assert modified_utf8("a\0é€") == b"a\xc0\x80\xc3\xa9\xe2\x82\xac"
    assert modified_utf8("😀") == b"\xed\xa0\xbd\xed\xb8\x80"
    assert java_serialisation("hi") == b"\xac\xed\x00\x05\x74\x00\x02hi"
    assert java_serialisation("x" * 65_535)[4:7] == b"\x74\xff\xff"
    assert java_serialisation("x" * 65_536)[4:13] == b"\x7c\x00\x00\x00\x00\x00\x01\x00\x00"


@pytest.mark.parametrize(
    "mapper", [TruncateMapper(2), TruncateBytes(1), Mask(4), Hash("MD5", "s", True, 8), Hash("SHA-1", "s", False, 0)]
)
def test_mappers_keep_length_type_and_slices_and_travel(mapper):
    values = pa.array(["abc", None, "abc", "\U0001f600\U0001f600", ""])
    whole = mapper(values)
    assert (len(whole), whole.type) == (5, pa.string())
    assert mapper(values.slice(1, 3)).to_pylist() == whole.to_pylist()[1:4]
    assert mapper(values.slice(0, 0)).to_pylist() == []
    assert mapper(pa.nulls(2, pa.string())).type == pa.string()
    assert pickle.loads(pickle.dumps(mapper))(values).equals(whole)


def test_a_salt_does_not_print():
    assert "pepper" not in repr(Hash("MD5", "pepper", True, 8))
