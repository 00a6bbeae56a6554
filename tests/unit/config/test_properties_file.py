"""Java's .properties format, by the rules of java.util.Properties.load."""

import pytest

from cdc_core.config.properties_file import parse_properties
from cdc_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("a:1", [("a", "1")]),
        ("a 1", [("a", "1")]),
        ("a\t=\t 1 ", [("a", "1 ")]),
        ("  a = b = c", [("a", "b = c")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=b", [("", "b")]),
        ("# no\n! no\n\n   # no\na=1", [("a", "1")]),
        ("a=1\\\n   2\\\n\t3\nb=4", [("a", "123"), ("b", "4")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n# not a comment", [("a", "1# not a comment")]),
        ("a\\=b\\:c\\ d=1", [("a=b:c d", "1")]),
        (r"a=.+\\.timestamp", [("a", r".+\.timestamp")]),
        (r"a=\t\n\r\f\x", [("a", "\t\n\r\fx")]),
        (r"a=\u00e4\uD83D\uDE00", [("a", "ä😀")]),
        ("a=1\rb=2\r\nc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("a=last\\", [("a", "last")]),
    ],
)
def test_lines_are_read_as_java_reads_them(text, expected):
    assert list(parse_properties(text, "x")) == expected


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u12G4", "b=1\n\na=\\u"])
def test_a_broken_unicode_escape_names_its_line(text):
    with pytest.raises(ConfigError, match=rf"x, line {len(text.splitlines())}: "):
        parse_properties(text, "x")
