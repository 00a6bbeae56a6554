"""Tables that are opened again a moment later: the log is not loaded again, and what is told is the newest version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.lake.delta import recent
from cdc_core.lake.delta.recent import claim, open_newest
from cdc_core.lake.delta.table import DeltaTable

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
WIDER = pa.schema([*SCHEMA, ("w", pa.string())])


def made(path: Path) -> str:
    """A table that nobody has opened yet."""
    DeltaTable.create(str(path), SCHEMA, {})
    recent._recent.pop(str(path))
    return str(path)


def opened(path: str) -> DeltaTable:
    found = DeltaTable.open(path)
    assert found is not None
    return found


def add(table: DeltaTable, number: int) -> None:
    table.commit([table.write(pa.table({"id": [number], "v": ["x"]}, schema=SCHEMA))], txns={"position": number})


def ids(table: DeltaTable) -> list[int]:
    return sorted(one for file in table.files for one in table.read(file).column("id").to_pylist())


def test_a_table_that_has_not_changed_is_not_loaded_again(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    assert open_newest(path, None) is open_newest(path, None)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: add(table, 2),
        lambda table: table.commit(schema=WIDER),
        lambda table: table.enable_vectors(),
        lambda table: table.commit([], replace=True, schema=WIDER),
        lambda table: (add(table, 2), table.raw().create_checkpoint()),
    ],
    ids=["files", "columns", "features", "replaced", "checkpoint"],
)
def test_what_one_reader_commits_the_other_has_not_until_it_asks(
    tmp_path: Path, change: Callable[[DeltaTable], object]
) -> None:
    path = made(tmp_path / "t")
    add(opened(path), 1)
    writer, reader = opened(path), opened(path)
    before = (reader.version, reader.schema, ids(reader), reader.txn("position"), reader.features)
    change(writer)
    assert before == (reader.version, reader.schema, ids(reader), reader.txn("position"), reader.features)
    late = opened(path)
    reader.refresh()
    for table in (late, reader):
        assert (table.version, table.schema, table.features) == (writer.version, writer.schema, writer.features)
        assert (ids(table), table.txn("position")) == (ids(writer), writer.txn("position"))
    assert late.version > before[0]


def test_a_reader_that_refreshes_leaves_the_others_where_they_are(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    first, second = opened(path), opened(path)
    add(opened(path), 1)
    first.refresh()
    assert (ids(first), ids(second), second.txn("position")) == ([1], [], None)
    add(first, 2)
    assert (ids(first), ids(second)) == ([1, 2], [])


def test_a_commit_is_seen_although_the_folder_has_the_same_time(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    log = tmp_path / "t" / "_delta_log"
    found = os.stat(log)
    known, writer = open_newest(path, None), opened(path)
    add(writer, 1)
    os.utime(log, ns=(found.st_atime_ns, found.st_mtime_ns))
    # All that its time can tell is as it was; os.utime itself sets the change time.
    known.stamps = tuple(
        (each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        for each in map(os.stat, (log, log / f"{0:020}.json"))
    )
    recent._recent[path] = known
    assert opened(path).version == 1


def test_a_table_that_takes_the_place_of_another_is_itself(tmp_path: Path) -> None:
    path, other = made(tmp_path / "t"), made(tmp_path / "other")
    before = opened(path).identity
    shutil.rmtree(path)
    assert DeltaTable.open(path) is None
    shutil.move(other, path)
    assert opened(path).identity != before


def test_only_a_sole_reader_may_take_the_object(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    sole = open_newest(path, None)
    assert claim(path, sole)
    shared = open_newest(path, None)
    assert shared is not sole and open_newest(path, None) is shared
    assert not claim(path, shared)


def test_what_nobody_asks_for_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = made(tmp_path / "t"), made(tmp_path / "u")
    kept = open_newest(first, None)
    open_newest(second, None)
    assert open_newest(first, None) is kept
    kept.at -= 2 * recent._SECONDS
    recent._recent.move_to_end(first, last=False)
    open_newest(made(tmp_path / "v"), None)
    assert open_newest(first, None) is not kept
    monkeypatch.setattr(recent, "_TABLES", 2)
    open_newest(made(tmp_path / "w"), None)
    assert len(recent._recent) == 2
