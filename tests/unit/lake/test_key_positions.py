"""Where rows are by their keys: equality is ``KeyIndex.match``'s, and only an index of the very file is believed."""

from __future__ import annotations

import os
import shutil
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index import index_file, key_positions
from cdc_core.lake.index.index_file import FileIndex, IndexedFile, open_index, write_index
from cdc_core.lake.index.key_positions import Hits, KeyPositions, positions_in
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows import key_hash
from cdc_core.lake.rows.images import TEXTS
from cdc_core.lake.rows.key_hash import row_hashes
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex
from tests.support.deletion_vectors import mark_deleted
from tests.support.sampling import examples
from tests.support.waits import patient
from tests.unit.lake.test_codes import TYPES

MANY = 1 << 40
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), (RESCUED, TEXTS)])


@dataclass
class Rows:
    """What ``KeyPositions`` uses of a lake table, over rows in memory."""

    schema: pa.Schema
    held: dict[str, pa.Table]
    identity: str = "a table"
    deleted: dict[str, np.ndarray] | None = None
    reads: int = 0

    @property
    def files(self) -> list[DataFile]:
        return [DataFile(path, 1, rows.num_rows) for path, rows in self.held.items()]

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        assert whole
        self.reads += 1
        return self.held[file.path].select(columns)

    def unmarked(self, file: DataFile, places: np.ndarray) -> np.ndarray:
        return np.ones(len(places), dtype=bool) if self.deleted is None else ~self.deleted[file.path][places]


def pairs(hits: Sequence[Hits]) -> list[tuple[str, list[tuple[int, int]]]]:
    return [(each.file.path, list(zip(each.places.tolist(), each.keys.tolist(), strict=True))) for each in hits]


def expected(lake: Rows, wanted: KeyIndex) -> list[tuple[str, list[tuple[int, int]]]]:
    """What reading every key says."""
    out = []
    for path, rows in lake.held.items():
        codes = wanted.match(rows)
        live = codes >= 0
        if lake.deleted is not None:
            live &= ~lake.deleted[path]
        places = np.flatnonzero(live)
        if len(places):
            out.append((path, [(int(at), int(codes[at])) for at in places]))
    return out


@st.composite
def keys(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.Table], np.random.Generator]:
    """Rows of some files and of a slice, with keys of one to three columns, some of their values only known as text."""
    drawn = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    names = [f"k{number}" for number in range(len(drawn))]
    texts = st.tuples(*[st.none() | st.sampled_from("xy") for _ in drawn])
    row = st.tuples(*[st.none() | values for _, values in drawn], texts)
    schema = pa.schema([*zip(names, [kind for kind, _ in drawn], strict=True), (RESCUED, TEXTS)])

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        columns = [pa.array([row[n] for row in rows], kind) for n, (kind, _) in enumerate(drawn)]
        texts = [
            [(name, text) for n, (name, text) in enumerate(zip(names, row[-1], strict=True)) if text and row[n] is None]
            for row in rows
        ]
        return pa.Table.from_arrays([*columns, pa.array([each or None for each in texts], TEXTS)], schema=schema)

    made = [table(draw(st.lists(row, max_size=12))) for _ in range(draw(st.integers(1, 4)))]
    seed = draw(st.integers(0, 2**32 - 1))
    return schema, made, np.random.default_rng(seed)


@pytest.mark.slow
@settings(max_examples=examples(120), deadline=None)
@given(made=keys(), collide=st.booleans())
def test_positions_are_those_that_reading_every_key_gives(
    made: tuple[pa.Schema, list[pa.Table], np.random.Generator], collide: bool, tmp_path_factory: Any
) -> None:
    schema, (slice_rows, *files), chance = made
    held = {str(number): rows for number, rows in enumerate([*files, slice_rows])}
    deleted = {path: chance.random(rows.num_rows) < 0.3 for path, rows in held.items()}
    lake = Rows(schema, held, deleted=deleted)
    columns = KeyColumns.of([name for name in schema.names if name != RESCUED], schema)
    wanted, _ = KeyIndex.of(columns, slice_rows)
    folder = tmp_path_factory.mktemp("index")
    with pytest.MonkeyPatch.context() as patched:
        if collide:  # different keys with one hash are told apart
            patched.setattr(index_file, "hashes", lambda parts: row_hashes(parts) % np.uint64(2))
            patched.setattr("cdc_core.lake.index.fingerprints.hashes", lambda parts: row_hashes(parts) % np.uint64(2))
        first = KeyPositions(folder, MANY)
        assert pairs(first.locate(lake, lake.files, wanted)) == expected(lake, wanted)
        assert pairs(first.locate(lake, lake.files, wanted)) == expected(lake, wanted)
        # From the files that the first one wrote, and from nothing but them.
        reads = lake.reads
        assert pairs(KeyPositions(folder, MANY).locate(lake, lake.files, wanted)) == expected(lake, wanted)
        assert lake.reads == reads


def test_long_texts_that_differ_in_their_middle_are_distinguished(tmp_path: Path) -> None:
    texts = [f"{'a' * 200}{number:04}{'b' * 200}" for number in range(300)]
    schema = pa.schema([("id", pa.string())])
    lake = Rows(schema, {"f": pa.table({"id": texts})})
    wanted, _ = KeyIndex.of(KeyColumns.of(["id"], schema), pa.table({"id": [texts[7], texts[5], "a" * 404]}))
    assert pairs(KeyPositions(tmp_path, MANY).locate(lake, lake.files, wanted)) == [("f", [(5, 1), (7, 0)])]


def test_a_key_of_another_type_than_the_lakes_is_compared_as_before(tmp_path: Path) -> None:
    lake = Rows(pa.schema([("id", pa.int64())]), {"f": pa.table({"id": pa.array([3, 1, 2], pa.int64())})})
    held = pa.table({"id": pa.array([1, 9], pa.int32())})
    wanted, _ = KeyIndex.of(KeyColumns.of(["id"], held.schema), held)
    assert pairs(KeyPositions(tmp_path, MANY).locate(lake, lake.files, wanted)) == expected(lake, wanted)
    assert not list(tmp_path.iterdir())


def test_hashes_are_those_of_the_files_that_exist() -> None:
    """If this fails, ``index_file.VERSION`` has to be changed too: files with other hashes would find nothing."""
    parts = [
        pa.array(["", "a", "é" * 100, None]),
        pa.array([1, -1, None, 2**40]),
        pa.array([0.0, -0.0, float("nan"), 1.5]),
        pa.array([[1], [], None, [None, 2]], pa.list_(pa.int32())),
    ]
    assert index_file.VERSION == 1
    assert row_hashes(parts).tolist() == [
        7145247216702814314,
        2935863230200077651,
        13500019603459632168,
        12985063537870628223,
    ]


# Real tables: what is read, and what is believed.


@pytest.fixture
def lake(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path / "lake"), SCHEMA, {})


def rows(ids: Sequence[int], text: str = "n") -> pa.Table:
    names = pa.array([f"{text}{each}" for each in ids])
    return pa.Table.from_arrays([pa.array(ids, pa.int64()), names, pa.nulls(len(ids), TEXTS)], schema=SCHEMA)


def wanted(lake: DeltaTable, ids: Sequence[int], key: Sequence[str] = ("id",)) -> KeyIndex:
    return KeyIndex.of(KeyColumns.of(key, lake.schema), rows(ids))[0]


def found(positions: KeyPositions, lake: DeltaTable, ids: Sequence[int], key: Sequence[str] = ("id",)) -> set[int]:
    """The ids of the rows at the positions that were found; each is the one that was wanted."""
    out = []
    for hits in positions.locate(lake, lake.files, wanted(lake, ids, key)):
        held = lake.read(hits.file, whole=True).column("id").to_numpy()[hits.places]
        assert held.tolist() == [ids[number] for number in hits.keys]
        assert np.all(np.diff(hits.places) > 0)
        out += held.tolist()
    assert len(out) == len(set(out))
    return set(out)


@pytest.mark.parametrize("key", [("id",), ("name",), ("name", "id")], ids=str)
def test_rows_of_a_table_are_found_and_deleted_ones_are_not(
    lake: DeltaTable, tmp_path: Path, key: tuple[str, ...]
) -> None:
    order = np.random.default_rng(1).permutation(1_000)
    lake.commit([lake.write(rows(order[:400].tolist())), lake.write(rows(order[400:].tolist()))])
    positions = KeyPositions(tmp_path / "index", MANY)
    asked = [5, 999, 0, 70, 5_000]
    assert found(positions, lake, asked, key) == {5, 999, 0, 70}
    marked = mark_deleted(lake.path, range(0, 300, 2))
    held = lake.read(next(file for file in lake.files if file.path == marked)).column("id").to_numpy()
    lake.refresh()
    gone = set(held[0:300:2].tolist())
    assert found(positions, lake, [*gone, *asked], key) == {5, 999, 0, 70} - gone


def test_a_file_that_statistics_exclude_gets_no_index(lake: DeltaTable, tmp_path: Path) -> None:
    lake.commit([lake.write(rows(range(100))), lake.write(rows(range(100, 200)))])
    positions = KeyPositions(tmp_path / "index", MANY)
    assert found(positions, lake, [3, 7]) == {3, 7}
    assert len(list((tmp_path / "index").iterdir())) == 1
    assert found(positions, lake, [300]) == set()
    assert found(positions, lake, [150]) == {150}
    assert len(list((tmp_path / "index").iterdir())) == 2


def test_an_index_made_from_rows_in_hand_needs_no_read(
    lake: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, positions = rows([9, 2, 5]), KeyPositions(tmp_path / "index", MANY)
    file = lake.write(held)
    lake.commit([file])
    positions.add(lake, file, held, KeyColumns.of(["id"], lake.schema))
    monkeypatch.setattr(lake, "read", None)
    (hits,) = positions.locate(lake, lake.files, wanted(lake, [5, 9]))
    assert (hits.places.tolist(), hits.keys.tolist()) == ([0, 2], [1, 0])


def test_the_index_of_a_removed_file_is_removed(lake: DeltaTable, tmp_path: Path) -> None:
    lake.commit([lake.write(rows([1, 2])), lake.write(rows([2, 3]))])
    positions = KeyPositions(tmp_path / "index", MANY)
    assert len(positions.locate(lake, lake.files, wanted(lake, [2]))) == 2
    lake.commit([], [lake.files[0]])
    assert len(positions.locate(lake, lake.files, wanted(lake, [2]))) == 1
    assert len(list((tmp_path / "index").iterdir())) == 1


def test_what_was_not_used_for_a_week_is_removed(lake: DeltaTable, tmp_path: Path) -> None:
    one_file(lake)
    folder = tmp_path / "index"
    folder.mkdir()
    for name, age in (("old", 8 * 86_400), ("new", 86_400)):
        (folder / f"{name}.keys").write_bytes(b"x")
        os.utime(folder / f"{name}.keys", (time.time() - age, time.time() - age))
    assert found(KeyPositions(folder, MANY), lake, [1]) == {1}
    assert not (folder / "old.keys").exists()
    assert (folder / "new.keys").exists()


def test_a_column_that_the_file_does_not_have_is_null(lake: DeltaTable, tmp_path: Path) -> None:
    lake.commit([lake.write(rows([1, 2]))])
    lake.commit(schema=pa.schema([*SCHEMA, ("part", pa.int32())]))
    lake.commit([lake.write(pa.table({**dict(zip(SCHEMA.names, rows([1]).columns, strict=True)), "part": [7]}))])
    asked = pa.table({"id": [1, 1], "part": pa.array([None, 7], pa.int32())})
    index, _ = KeyIndex.of(KeyColumns.of(["id", "part"], lake.schema), asked)
    hits = KeyPositions(tmp_path / "index", MANY).locate(lake, lake.files, index)
    keys = {each.file.rows: each.keys.tolist() for each in hits}
    assert keys == {2: [0], 1: [1]}


def one_file(lake: DeltaTable, ids: Sequence[int] = (4, 1, 3)) -> DataFile:
    lake.commit([lake.write(rows(ids))])
    return lake.files[0]


def index_path(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def damaged(path: Path, at: int) -> None:
    octets = bytearray(path.read_bytes())
    octets[at] ^= 1
    path.write_bytes(octets)


@pytest.mark.parametrize("key", [("id",), ("name",)], ids=str)
def test_no_damaged_bit_and_no_missing_end_is_believed(lake: DeltaTable, tmp_path: Path, key: tuple[str, ...]) -> None:
    one_file(lake)
    folder = tmp_path / "index"
    assert found(KeyPositions(folder, MANY), lake, [1, 3], key) == {1, 3}
    path = index_path(folder)
    whole = path.read_bytes()
    for at in (*range(64), *range(64, len(whole), 5)):
        damaged(path, at)
        assert KeyPositions(folder, MANY)._opened(*_asked(lake, key)) is None, at
        path.write_bytes(whole[:at])
        assert KeyPositions(folder, MANY)._opened(*_asked(lake, key)) is None, at
        path.write_bytes(whole)
    assert KeyPositions(folder, MANY)._opened(*_asked(lake, key)) is not None
    # It is made again, and then it is whole.
    damaged(path, len(whole) // 2)
    assert found(KeyPositions(folder, MANY), lake, [1, 3], key) == {1, 3}
    assert path.read_bytes() == whole


def _asked(lake: DeltaTable, key: Sequence[str]) -> Any:
    return key_positions._Key.of(lake, KeyColumns.of(key, lake.schema)), lake.files[0]


@pytest.mark.parametrize(
    "change",
    [
        {"table": "another"},
        {"path": "another"},
        {"size": 1},
        {"rows": 4},
        {"columns": ("name",)},
        {"types": ("int32",)},
    ],
    ids=str,
)
def test_an_index_of_anything_else_is_not_believed(tmp_path: Path, change: dict[str, Any]) -> None:
    columns = KeyColumns(("id",), (False,))
    index = FileIndex.of(columns, [pa.array([3, 1, 2])])
    source = IndexedFile("t", "p", 100, 3, ("id",), ("int64",))
    with (tmp_path / "i").open("wb") as target:
        write_index(target, index, source)
    assert open_index(tmp_path / "i", source, [pa.int64()]) is not None
    assert open_index(tmp_path / "i", replace(source, **change), [pa.int64()]) is None


def test_an_index_of_another_version_is_not_believed(
    lake: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_file(lake)
    folder = tmp_path / "index"
    assert found(KeyPositions(folder, MANY), lake, [1]) == {1}
    monkeypatch.setattr(index_file, "VERSION", 2)
    assert KeyPositions(folder, MANY)._opened(*_asked(lake, ["id"])) is None
    assert found(KeyPositions(folder, MANY), lake, [1]) == {1}
    assert struct.unpack_from("<I", index_path(folder).read_bytes(), 8) == (2,)


def test_a_table_created_again_at_the_same_path_has_other_indexes(lake: DeltaTable, tmp_path: Path) -> None:
    file = one_file(lake, (1, 2))
    positions = KeyPositions(tmp_path / "index", MANY)
    assert found(positions, lake, [1]) == {1}
    content = Path(lake.path, file.path).read_bytes()
    shutil.rmtree(lake.path)
    anew = DeltaTable.create(lake.path, SCHEMA, {})
    other = anew.write(rows([2, 1]))
    Path(anew.path, other.path).rename(Path(anew.path, file.path))
    anew.commit([replace(file, size=Path(anew.path, file.path).stat().st_size)])
    assert len(content) > 0
    assert found(positions, anew, [1]) == {1}
    assert len(list((tmp_path / "index").iterdir())) == 2


def test_the_folder_stays_within_its_bound_and_the_last_used_remain(lake: DeltaTable, tmp_path: Path) -> None:
    for begin in range(0, 1_000, 100):
        lake.commit([lake.write(rows(range(begin, begin + 100)))])
    folder = tmp_path / "index"
    one = KeyPositions(folder, MANY)
    assert found(one, lake, [5]) == {5}
    size = index_path(folder).stat().st_size
    positions = KeyPositions(folder, 4 * size)
    for each in range(0, 1_000, 100):
        old = time.time() - 1_000 + each
        assert found(positions, lake, [each]) == {each}
        for path in folder.iterdir():
            if path.stat().st_mtime > time.time() - 100:
                os.utime(path, (old, old))
        assert sum(path.stat().st_size for path in folder.iterdir()) <= 4 * size
    assert found(positions, lake, list(range(1_000))) == set(range(1_000))
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 4 * size


def test_what_a_killed_process_left_is_removed(lake: DeltaTable, tmp_path: Path) -> None:
    one_file(lake)
    folder = tmp_path / "index"
    folder.mkdir()
    left, new = folder / "a.b.new", folder / "c.d.new"
    for path in (left, new):
        path.write_bytes(b"x")
    os.utime(left, (1, 1))
    assert found(KeyPositions(folder, MANY), lake, [1]) == {1}
    assert not left.exists()
    assert new.exists()


def test_a_removed_index_is_made_again(lake: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one_file(lake)
    folder, positions = tmp_path / "index", KeyPositions(tmp_path / "index", MANY)
    assert found(positions, lake, [1]) == {1}
    shutil.rmtree(folder)
    assert found(positions, lake, [4]) == {4}, "what is mapped is still there"
    monkeypatch.setattr(key_positions, "_TOUCH_SECONDS", 0.0)
    assert found(positions, lake, [3]) == {3}
    assert index_path(folder).exists()


def test_a_folder_that_cannot_be_written_is_no_error(
    lake: DeltaTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one_file(lake)
    (tmp_path / "index").write_text("not a folder")
    positions = KeyPositions(tmp_path / "index", MANY)
    assert found(positions, lake, [1, 7]) == {1}
    assert found(positions, lake, [3]) == {3}
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        f"The folder {tmp_path / 'index'} for indexes of keys cannot be written"
    ]


def test_two_workers_that_make_the_same_index_are_both_right(lake: DeltaTable, tmp_path: Path) -> None:
    lake.commit([lake.write(rows(range(start, start + 2_000))) for start in range(0, 20_000, 2_000)])
    asked, results = list(range(0, 20_000, 7)), []

    def work() -> None:
        own = DeltaTable.open(lake.path)
        assert own is not None
        results.append(found(KeyPositions(tmp_path / "index", MANY), own, asked))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patient(60))
    assert results == [set(asked)] * 4
    assert len(list((tmp_path / "index").iterdir())) == 10


def test_missing_indexes_are_made_within_a_time(lake: DeltaTable, tmp_path: Path) -> None:
    lake.commit([lake.write(rows(range(start, start + 10))) for start in range(0, 100, 10)])
    positions, columns = KeyPositions(tmp_path / "index", MANY), KeyColumns.of(["id"], lake.schema)
    assert not positions.ready(lake, lake.files, columns, 0.0)
    assert positions.ready(lake, lake.files, columns, 60.0)
    assert len(list((tmp_path / "index").iterdir())) == 10
    assert positions.ready(lake, lake.files, columns, 0.0)


def test_pages_are_given_back_above_a_bound(lake: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_positions, "_RESIDENT_BYTES", 0)
    one_file(lake)
    positions = KeyPositions(tmp_path / "index", MANY)
    assert found(positions, lake, [1, 3]) == {1, 3}
    assert found(positions, lake, [1, 3]) == {1, 3}


def test_a_process_has_one_object_for_a_folder(tmp_path: Path) -> None:
    assert positions_in(str(tmp_path), 5) is positions_in(str(tmp_path), 5)


def test_long_values_are_hashed_by_both_ends() -> None:
    whole = pa.array(["a" * 127, "a" * 128, "a" * 129, "b" + "a" * 128, "a" * 128 + "b", "", "\x00", "a\x00"])
    assert len(set(row_hashes([whole]).tolist())) == len(whole)
    shifted = pa.concat_arrays([pa.array(["xyz"]), whole]).slice(1)
    assert row_hashes([shifted]).tolist() == row_hashes([whole]).tolist()
    many = pa.array([f"{number:>{number % 300}}" for number in range(1_000)])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_hash, "_AT_ONCE", 7)
        some = row_hashes([many])
    assert some.tolist() == row_hashes([many]).tolist()
