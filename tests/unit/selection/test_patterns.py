"""Java's regular expressions, as Debezium matches them."""

import pytest

from cdc_core.option import parse_patterns
from cdc_core.selection.patterns import compile_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("inventory", "inventory", True),
        ("inventory", "INVENTORY", True),
        ("inventory", "inventory2", False),
        ("inventory", "xinventory", False),
        ("inventory.*", "inventory2", True),
        ("a|ab", "ab", True),
        ("^a$", "a", True),
        ("a.b", "axb", True),
        (r"a\.b", "axb", False),
        (r"\Qa.b\E.*", "a.bc", True),
        (r"\Qa.b", "axb", False),
        (r"\p{Alpha}+", "Abc", True),
        (r"[\p{Digit}_]+", "1_2", True),
        (r"\p{Lower}", "1", False),
        (r"(?<word>a)\k", "a", None),
        (r"(?<word>a)b", "ab", True),
        (r"(?<!x)a", "a", True),
        (r"a\z", "a", True),
        (r"a{1,2}", "aa", True),
        (r"\w+", "é", False),
        ("K", "\u212a", False),
        ("ß", "SS", False),
        ("é", "É", False),
        (r"[[]a", "[a", None),
    ],
)
def test_a_pattern_matches_the_whole_name_in_any_ascii_case(pattern, name, matches):
    if matches is None:
        with pytest.raises(ValueError, match=r"no group|not closed"):
            compile_pattern(pattern)
    else:
        assert bool(compile_pattern(pattern).fullmatch(name)) is matches


@pytest.mark.parametrize(
    ("pattern", "why"), [("a(", "not closed"), (r"\p{Klingon}", "the property Klingon"), ("*a", "nothing")]
)
def test_a_broken_pattern_says_why(pattern, why):
    with pytest.raises(ValueError, match=why):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ("a", "b")),
        (" a , ,b,", ("a", "b")),
        (r"a{1\,2},b", ("a{1,2}", "b")),
        (r"a\\,b", (r"a\\", "b")),
        (r"a\.b\,c", (r"a\.b,c",)),
        ("", ()),
    ],
)
def test_lists_are_split_at_bare_commas(text, parts):
    assert parse_patterns(text) == parts
