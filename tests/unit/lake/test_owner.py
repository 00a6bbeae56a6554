"""A Delta table names its owner, and nobody else opens it: names that differ may lead to one folder."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from cdc_core.errors import CdcError, SharedFolderError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.paths import LakePaths
from cdc_core.schema.table import TableId

SCHEMA = pa.schema([("id", pa.int64())])
UPPER, LOWER = TableId("public", "Orders"), TableId("public", "orders")


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    """A lake in which the names of the two tables, and Shop and shop, lead to one folder each."""
    lake = tmp_path / "lake"
    (lake / "Shop").mkdir(parents=True)
    (lake / "shop").symlink_to(lake / "Shop")
    for kind in ("", "__changelog", "__quarantine"):
        (lake / "Shop" / kind / "public/Orders").mkdir(parents=True)
        (lake / "Shop" / kind / "public/orders").symlink_to(lake / "Shop" / kind / "public/Orders")
    return LakePaths(str(lake), "Shop")


@pytest.mark.parametrize("kind", ["lake", "changelog", "quarantine"])
def test_a_folder_is_refused_to_another_table(paths: LakePaths, kind: str) -> None:
    mine, other = getattr(paths, kind)(UPPER), getattr(paths, kind)(LOWER)
    made = DeltaTable.create(mine, SCHEMA, {"delta.appendOnly": "false"})
    made.commit([made.write(pa.table({"id": [1]}))])
    made.commit(
        [],
        schema=pa.schema([*SCHEMA, ("v", pa.string())]),
        replace=True,
        metadata={"slot": "s"},
        txns={"wal2lake:x": 1},
    )
    made.enable_vectors()
    made.raw().create_checkpoint()
    for path in (other, pickle.loads(pickle.dumps(other))):
        for attempt in (
            lambda path=path: DeltaTable.open(path),
            lambda path=path: DeltaTable.open_version(path, 0),
            lambda path=path: DeltaTable.create(path, SCHEMA, {}),
        ):
            with pytest.raises(
                SharedFolderError, match=r"belongs to table public\.Orders, not to table public\.orders"
            ):
                attempt()
    again = DeltaTable.open(pickle.loads(pickle.dumps(mine)))
    assert again is not None and again.version == made.version
    assert deltalake.DeltaTable(mine).version() == made.version


def test_of_two_that_are_created_at_once_one_is_refused(paths: LakePaths) -> None:
    def create(table: TableId) -> object:
        try:
            return DeltaTable.create(paths.lake(table), SCHEMA, {})
        except CdcError as error:
            return error

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(create, [UPPER, LOWER] * 4))
    refused = [isinstance(each, SharedFolderError) for each in made]
    assert refused in ([True, False] * 4, [False, True] * 4), made


def test_connectors_whose_prefixes_lead_to_one_folder(paths: LakePaths) -> None:
    other = LakePaths(paths.root, "shop")
    DeltaTable.create(paths.stream, SCHEMA, {})
    with pytest.raises(SharedFolderError, match=r"belongs to topic\.prefix Shop, not to topic\.prefix shop"):
        DeltaTable.open(other.stream)


def test_a_table_without_an_owner_is_anybodys(paths: LakePaths) -> None:
    deltalake.DeltaTable.create(paths.lake(UPPER), deltalake.Schema.from_arrow(SCHEMA))
    assert DeltaTable.open(paths.lake(LOWER)) is not None
    assert DeltaTable.open(str(paths.lake(UPPER))) is not None


def test_a_table_may_be_moved_and_copied_with_its_lake(paths: LakePaths, tmp_path: Path) -> None:
    DeltaTable.create(paths.lake(UPPER), SCHEMA, {})
    (tmp_path / "lake").rename(tmp_path / "moved")
    assert DeltaTable.open(LakePaths(str(tmp_path / "moved"), "Shop").lake(UPPER)) is not None
