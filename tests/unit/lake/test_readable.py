"""Folders of lake tables and changelogs that cannot be used, and what is said of each."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.engine.schema.trouble import trouble_of
from cdc_core.errors import UnreadableError
from cdc_core.lake.delta.readable import open_complete, open_own
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId

T = TableId("public", "orders")
SCHEMA = pa.schema([("id", pa.int64()), ("__commit_lsn", pa.int64())])


def made(path: str, schema: pa.Schema = SCHEMA) -> Path:
    table = DeltaTable.create(path, schema, {})
    table.commit([table.write(schema.empty_table())], txns={"app": 1})
    return Path(path)


def replace_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("")


def replace_log(folder: Path) -> None:
    shutil.rmtree(folder / "_delta_log")
    (folder / "_delta_log").write_text("")


def garble_log(folder: Path) -> None:
    max((folder / "_delta_log").glob("*.json")).write_text("garbage")


def remove_data(folder: Path) -> None:
    for file in folder.glob("*.parquet"):
        file.unlink()


BREAKS = (replace_folder, replace_log, garble_log, remove_data)


@pytest.mark.parametrize("damage", BREAKS)
def test_a_damaged_folder_is_reported_by_its_path(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    paths = LakePaths(str(tmp_path), "shop")
    for path, loses in ((paths.lake(T), False), (paths.changelog(T), True), (paths.quarantine(T), False)):
        folder = made(path)
        assert open_complete(path) is not None
        damage(folder)
        with pytest.raises(UnreadableError) as caught:
            open_complete(path)
        # As an error of a Spark task arrives.
        found = trouble_of(pickle.loads(pickle.dumps(caught.value)), T, paths)
        assert path in found.reason and str(T) in found.remedy and found.loses_changes is loses


def test_a_table_of_another_program_is_not_opened(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    assert open_own(path) is None
    made(path, pa.schema([("id", pa.int64())]))
    with pytest.raises(UnreadableError, match="wal2lake did not write"):
        open_own(path)


def test_a_missing_data_file_is_an_error_of_its_table(tmp_path: Path) -> None:
    folder = made(str(tmp_path / "t"))
    table = open_own(str(folder))
    assert table is not None
    remove_data(folder)
    with pytest.raises(UnreadableError, match="cannot be read"):
        table.read(table.files[0])
