"""Commits of other programs in a lake table: found by what they change and by what they lack."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from cdc_core.errors import UnreadableError
from cdc_core.lake.delta.foreign import foreign_commit
from cdc_core.lake.delta.table import DeltaTable

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string())])
OWN = {"wal2lake:slot:public.t:0": 1}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "v": ['"appId":"wal2lake:' for _ in ids]}, schema=SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> DeltaTable:
    """Version 1 is ours."""
    table = DeltaTable.create(str(tmp_path / "t"), SCHEMA, {})
    table.commit([table.write(rows(1, 2, 3))], txns=OWN)
    return table


def test_rows_that_others_change_are_found(lake: DeltaTable) -> None:
    other = deltalake.DeltaTable(lake.path)
    deltalake.write_deltalake(other, rows(9), mode="append")  # 2
    lake.refresh()
    lake.commit([lake.write(rows(4))], [file for file in lake.files if file.rows == 3], txns=OWN)  # 3
    other.update_incremental()
    other.delete("id = 9")  # 4
    other.restore(2)  # 5
    assert [foreign_commit(lake.path, since, 5) for since in range(6)] == [2, 2, 4, 4, 5, None]


def test_maintenance_and_settings_of_others_change_no_rows(lake: DeltaTable) -> None:
    lake.commit([lake.write(rows(4))], txns=OWN)
    lake.commit([], lake.files[:1], txns=OWN)
    other = deltalake.DeltaTable(lake.path)
    other.optimize.compact()
    other.optimize.z_order(["id"])
    other.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})
    other.vacuum(0, dry_run=False, enforce_retention_duration=False)
    other.update_incremental()
    assert foreign_commit(lake.path, 0, other.version()) is None
    # What the log no longer has is not looked for.
    (Path(lake.path) / "_delta_log" / f"{1:020}.json").unlink()
    assert foreign_commit(lake.path, 0, other.version()) is None


def test_a_table_that_others_made_append_only_is_reported(lake: DeltaTable) -> None:
    deltalake.DeltaTable(lake.path).alter.set_table_properties({"delta.appendOnly": "true"})
    lake.refresh()
    lake.commit([lake.write(rows(4))], txns=OWN)
    with pytest.raises(UnreadableError, match="appendOnly is true"):
        lake.commit([lake.write(rows(5))], lake.files[:1], txns=OWN)
