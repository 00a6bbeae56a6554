"""Names become folders that cannot collide, and can be read back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths, folder, name_of
from cdc_core.schema.table import TableId

# What PostgreSQL allows in a name, with much of what is special somewhere.
NAMES = st.text(
    st.one_of(
        st.sampled_from("abAB09_-.$~%/\\: =+'\"`#?*[]{}|<>&;,@!()\t\n\r\x01\x7fé\u0301\u2028ßİ中"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    min_size=1,
    max_size=63,
).filter(lambda name: len(name.encode()) <= 63)
SCHEMA = pa.schema([("id", pa.int64())])
UGLY = [
    "a/b",
    "%41",
    "a%2Fb",
    "..",
    ".",
    "a\\b",
    "x.",
    " x ",
    "a\nb",
    "a[1]|",
    "_delta_log",
    "CON",
    "a:b=c",
    "été",
    "~2F",
]


@given(NAMES)
def test_a_folder_is_one_safe_component_and_can_be_read_back(name: str) -> None:
    found = folder(name)
    assert name_of(found) == name
    assert not set(found) & set("/\\%:*?\"'<>|#[]{}=+&;, \t\r\n\x00\x01\x7f`")
    assert found.strip(". ") == found and found not in ("", ".", "..")
    assert not found.startswith(("__", "_delta_log", "_change_data", "_spark_metadata", "_temporary"))
    assert found.split(".")[0].casefold() not in {"con", "nul", "aux", "prn", "com1", "lpt9"}
    assert len(found.encode()) <= 189
    assert unquote(found) == found
    assert quote(found, safe="$~") == found or not found.isascii()


@given(NAMES, NAMES)
def test_two_names_never_share_a_folder(one: str, other: str) -> None:
    assert (folder(one) == folder(other)) == (one == other)


@given(st.from_regex(r"[a-zA-Z0-9$-][a-zA-Z0-9_$-]{0,61}", fullmatch=True))
def test_plain_names_are_their_folders(name: str) -> None:
    reserved = name.casefold() in {"con", "prn", "aux", "nul"} | {
        f"{port}{n}" for port in ("com", "lpt") for n in range(10)
    }
    assert (folder(name) == name) is not reserved


@pytest.mark.parametrize("name", ["_prisma_migrations", "größe", "中文", "Orders", "v1.2", "order-lines", "a$b"])
def test_usual_names_stay_plain(name: str) -> None:
    assert folder(name) == name


@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_no_table_lies_inside_another_or_in_the_connectors_own_folders(
    one: tuple[str, str], two: tuple[str, str]
) -> None:
    paths = LakePaths("/lake", "p")
    places = [paths.lake(TableId(*one)), paths.changelog(TableId(*one)), paths.quarantine(TableId(*one))]
    places += [paths.lake(TableId(*two)), paths.changelog(TableId(*two)), paths.quarantine(TableId(*two))]
    own = [paths.rounds, paths.schema_versions, paths.snapshots, paths.incremental, paths.ranges, paths.notifications]
    own += [paths.staged, paths.key_ranges]
    assert len(set(places)) == (3 if one == two else 6)
    for place in places:
        assert all(not other.startswith(place + "/") for other in places)
        assert not place.startswith(tuple(f"{each}/" for each in own)) and place not in own


def test_every_ugly_name_is_a_table_of_its_own(tmp_path: Path) -> None:
    paths = LakePaths(str(tmp_path), "p")
    for number, name in enumerate(UGLY):
        schema = pa.schema([(f"c{number}", pa.int64())])
        assert DeltaTable.create(paths.lake(TableId(name, name)), schema, {}).version == 0
    for number, name in enumerate(UGLY):
        opened = DeltaTable.open(paths.lake(TableId(name, name)))
        assert opened is not None and opened.schema.names == [f"c{number}"]


def test_a_prefix_of_dots_is_no_other_folder() -> None:
    assert LakePaths("/lake", "..").base == "/lake/~2E~2E"
    assert LakePaths("s3://bucket/x", "shop.eu").base == "s3a://bucket/x/shop.eu"
