"""The file of FileOffsetBackingStore: as Java writes it, and nothing else."""

from __future__ import annotations

import itertools

import pytest

from cdc_core.errors import ConfigError
from cdc_core.offsets.java_map import is_map, read_map, write_map

# Written by ObjectOutputStream of OpenJDK 17: two entries, the second without a value.
JAVA = bytes.fromhex(
    "aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d103000246000a6c6f6164466163746f724900097468"
    "726573686f6c6478703f4000000000000c77080000001000000002757200025b42acf317f8060854e0020000787000000014"
    "5b226e222c7b22736572766572223a2270227d5d7571007e0002000000097b226c736e223a317d7571007e0002000000026b327078"
)
ENTRIES = [(b'["n",{"server":"p"}]', b'{"lsn":1}'), (b"k2", None)]


def test_a_file_that_java_wrote() -> None:
    assert is_map(JAVA)
    assert read_map(JAVA, "f") == ENTRIES


def test_what_is_written_is_what_java_writes() -> None:
    one = JAVA[:-14].replace(b"\x00\x00\x00\x10\x00\x00\x00\x02", b"\x00\x00\x00\x10\x00\x00\x00\x01") + b"\x78"
    assert write_map([(b'["n",{"server":"p"}]', b'{"lsn":1}')]) == one
    many = [(f"k{n}".encode(), b"v" * n) for n in range(40)]
    assert read_map(write_map(many), "f") == many
    assert read_map(write_map([]), "f") == []


def test_one_array_may_stand_twice() -> None:
    # The last value, null, is replaced by a reference to the first key: the fourth object of the file.
    assert read_map(JAVA[:-2] + b"\x71\x00\x7e\x00\x03\x78", "f")[1] == (b"k2", ENTRIES[0][0])
    with pytest.raises(ConfigError, match="something else than a byte array"):
        read_map(JAVA[:-2] + b"\x71\x00\x7e\x00\x00\x78", "f")


def test_a_file_that_was_cut() -> None:
    for length in range(len(JAVA)):
        with pytest.raises(ConfigError):
            read_map(JAVA[:length], "f")


def test_a_file_with_a_wrong_byte_is_refused_or_read() -> None:
    for at, value in itertools.product(range(len(JAVA)), (0x00, 0x71, 0xFF)):
        damaged = JAVA[:at] + bytes([value]) + JAVA[at + 1 :]
        try:
            assert len(read_map(damaged, "f")) == 2
        except ConfigError as error:
            assert "not a file of Connect's offsets" in error.message


def test_other_classes_are_refused() -> None:
    other = JAVA.replace(b"\x00\x11java.util.HashMap", b"\x00\x11java.util.TreeMap")
    with pytest.raises(ConfigError, match="not a serialised"):
        read_map(other, "f")
    with pytest.raises(ConfigError, match="more follows"):
        read_map(JAVA + b"\x70", "f")
