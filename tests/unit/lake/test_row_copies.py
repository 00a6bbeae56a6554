"""Copies of data files: rows at any places are those of the file, and a copy is made when it is worth it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_core.lake.delta import row_copies
from cdc_core.lake.delta.row_copies import RowCopies, copies_in
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.schema.lake_schema import lake_properties
from tests.unit.lake.test_pages import made

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("empty", pa.string())])
ROWS = 30_000


class Copied:
    """A table of one file, and copies in a folder."""

    def __init__(self, folder: Path, rows: pa.Table, most: int = 1 << 30) -> None:
        self.folder, self.most = folder, most
        self.lake = DeltaTable.create(str(folder / "lake"), rows.schema, lake_properties(0))
        self.lake.commit(self.lake.write_stream(rows.to_batches(), rows.schema, 1 << 20))
        self.rows = self.lake.read(self.file)
        self.again()

    def again(self) -> None:
        """As another process."""
        self.copies = RowCopies(self.folder / "index", self.most)
        self.lake.use_copies(self.copies)

    @property
    def file(self):
        (file,) = self.lake.files
        return file

    @property
    def name(self) -> str:
        return f"{self.lake.path}/{self.file.path}"

    @property
    def on_disk(self) -> list[Path]:
        return sorted((self.folder / "index").glob("*"))

    def check(self, *places: int, columns: list[str] | None = None) -> None:
        expected = self.rows.take(pa.array(places)).select(columns or self.rows.schema.names)
        assert self.lake.read_at(self.file, np.array(places), columns).equals(expected)


def plain(rows: int = ROWS) -> pa.Table:
    texts = np.char.add("text ", np.arange(rows).astype(str))
    return pa.table([np.arange(rows), pa.array(texts), pa.nulls(rows, pa.string())], schema=SCHEMA)


def test_rows_of_every_type_from_any_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_core.lake.delta.row_groups._GROUP_ROWS", 700)
    for seed in range(12):
        chance = random.Random(seed)
        rows = made(chance, 2_500, chance.choice((0, 0.3)))
        one = Copied(tmp_path / str(seed), pa.Table.from_batches(rows.to_batches(chance.randint(50, 900))))
        for _ in range(6):
            places = sorted(chance.sample(range(2_500), chance.choice((1, 20, 2_500))))
            one.check(*places)
            one.check(*places, columns=chance.sample(one.rows.schema.names, 1))
        assert one.copies.of(one.name) is not None


def test_a_copy_is_made_once_as_much_was_read_without_it(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain())
    one.check(7)
    one.check(1, 9, 29_999)
    assert not one.on_disk
    one.check(*range(0, ROWS, 3))
    assert not one.on_disk
    one.check(5)
    (copy,) = one.on_disk
    one.check(0, 12_345, 29_999)
    made_at = copy.stat().st_ino
    one.again()
    one.check(0, 12_345, 29_999)
    assert one.on_disk == [copy] and copy.stat().st_ino == made_at


def test_a_column_that_the_file_lacks_is_null_and_others_have_the_types_of_the_table(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain(100))
    one.check(1)
    one.check(2)
    assert one.on_disk
    wider = pa.schema([*SCHEMA, ("later", pa.int32())])
    one.lake.commit(schema=wider)
    rows = one.lake.read_at(one.file, np.array([3, 50]))
    assert rows.schema.equals(wider) and rows.column("later").null_count == 2
    assert rows.column("id").to_pylist() == [3, 50]
    assert one.lake.read_at(one.file, np.array([3]), ["later"]).column("later").null_count == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_copy_is_not_believed(tmp_path: Path, damage: str) -> None:
    one = Copied(tmp_path, plain(100))
    one.check(1)
    one.check(2)
    (copy,) = one.on_disk
    whole = copy.read_bytes()
    middle = len(whole) // 2
    copy.unlink()
    copy.write_bytes(
        {"cut": whole[:middle], "changed": whole[:middle] + b"\x77" * 8 + whole[middle + 8 :], "empty": b""}[damage]
    )
    one.again()
    assert one.copies.of(one.name) is None
    for _ in range(3):
        one.check(3, 50)
    assert copy.read_bytes() == whole


def test_a_file_that_is_written_gets_its_copy_from_the_rows_in_hand(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain(100))
    file = one.lake.write(plain(50))
    (copy,) = one.on_disk
    found = one.lake.read_at(file, np.array([4, 49]))
    (tmp_path / "lake" / file.path).unlink()
    assert one.lake.read_at(file, np.array([4, 49])).equals(found) and found.equals(plain(50).take(pa.array([4, 49])))
    assert one.on_disk == [copy]


def test_the_copy_of_a_file_goes_with_the_file(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain(100))
    one.check(1)
    one.check(2)
    assert len(one.on_disk) == 1
    one.lake.commit([one.lake.write(plain(10))], [one.file])
    one.lake.use_copies(one.copies)
    assert len(one.on_disk) == 1 and one.copies.of(one.name) is not None


def test_copies_that_had_to_go_are_let_go(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain(100))
    one.check(1)
    one.check(2)
    (copy,) = one.on_disk
    copy.unlink()
    one.check(3)
    assert one.copies.of(one.name) is None and one.copies._mapped == 0
    one.check(4)
    assert one.on_disk == [copy]


def test_copies_that_take_long_are_made_in_several_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copies, "_MAKING_SECONDS", 0.0)
    one = Copied(tmp_path, plain(100))
    lake = one.lake
    lake.commit([file for _ in range(3) for file in lake.write_stream(plain(100).to_batches(), SCHEMA, 100)])
    found = []
    for _ in range(5):
        lake.use_copies(one.copies)
        for file in lake.files:
            assert lake.read_at(file, np.array([7])).equals(plain(100).slice(7, 1))
        found.append(len(one.on_disk))
    assert found == [0, 1, 2, 3, 4]


def test_a_file_whose_copy_has_no_room_is_read_as_before(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain(), most=100)
    for _ in range(4):
        one.check(*range(0, ROWS, 3))
    assert not one.on_disk


def test_a_folder_that_cannot_be_written_is_told_once_and_rows_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "index").write_text("")
    one = Copied(tmp_path, plain(100))
    for _ in range(4):
        one.check(3, 50)
    assert [record.message.count("copies of rows") for record in caplog.records] == [1]


def test_what_arrow_cannot_store_is_read_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*given: object) -> Iterator[None]:
        raise pa.ArrowInvalid("damaged")

    one = Copied(tmp_path, plain(100))
    monkeypatch.setattr(row_copies, "plain_schema", refuses)
    for _ in range(3):
        one.check(3, 50)
    assert not one.on_disk


def test_views_of_other_writers_are_copied_as_what_they_show(tmp_path: Path) -> None:
    one = Copied(tmp_path, plain(100))
    file = one.file
    views = one.rows.cast(pa.schema([("id", pa.int64()), ("text", pa.string_view()), ("empty", pa.string())]))
    pq.write_table(views, tmp_path / "lake" / file.path, store_schema=True)
    for _ in range(3):
        one.check(3, 50)
    assert one.on_disk


def test_pages_are_given_back_above_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copies, "_RESIDENT_BYTES", 0)
    one = Copied(tmp_path, plain())
    for _ in range(3):
        one.check(*range(0, ROWS, 3))
    maps = Path("/proc/self/smaps").read_text().partition(str(one.on_disk[0]))[2]
    assert int(maps.partition("Rss:")[2].split()[0]) == 0


def test_few_copies_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_copies, "_MOST_OPEN", 2)
    monkeypatch.setattr(row_copies, "_MOST_NOTED", 2)
    copies = copies_in(str(tmp_path), 1 << 20)
    assert copies is copies_in(str(tmp_path), 1 << 20)
    for name in "abcd":
        assert copies.made(name, [plain(3)]) is not None
    assert list(copies._open) == ["c", "d"]
    assert copies.of("a") is not None and list(copies._open) == ["d", "a"]
    for name in "efgh":
        assert not copies.is_due(name, 1, 3, 10)
    assert list(copies._rows_read) == ["g", "h"]
