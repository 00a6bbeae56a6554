"""A table that follows another worker's commits by their entries is the one that delta-rs loads from the log."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_core.errors import CommitConflictError
from cdc_core.lake.delta import loaded
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.definition import Definition
from cdc_core.lake.delta.table import DeltaTable
from tests.support.sampling import examples

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("exact", pa.decimal128(10, 2)),
        ("real", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("truth", pa.bool_()),
        ("bytes", pa.binary()),
        ("__valid_to_lsn", pa.int64()),
    ]
)
FEATURES = {
    "plain": lambda definition, lake: definition,
    "vectors": lambda definition, lake: definition.with_vectors(),
    "mapping": lambda definition, lake: definition.with_vectors().with_mapping(),
    "row tracking": lambda definition, lake: definition.with_vectors().with_row_tracking(),
    "commit times": lambda definition, lake: definition.with_vectors().with_commit_timestamps(lake.version + 1, 1),
}


def some_rows(chance: random.Random) -> pa.Table:
    count = chance.randint(1, 6)

    def column(made: Any) -> list[Any]:
        is_empty = chance.random() < 0.2
        return [None if is_empty or chance.random() < 0.2 else made() for _ in range(count)]

    texts = ["", "plain", "é ö", '"quoted" \\', "2026-01-01", "x" * 36, "x" * 37, "\u0000"]
    return pa.Table.from_arrays(
        [
            pa.array([chance.randint(-(2**63), 2**63 - 1) for _ in range(count)], pa.int64()),
            pa.array(column(lambda: chance.randint(-(2**15), 2**15 - 1)), pa.int16()),
            pa.array(column(lambda: chance.choice(texts)), pa.string()),
            pa.array(column(lambda: date(1, 1, 1) + timedelta(days=chance.randint(0, 3_000_000))), pa.date32()),
            pa.array(column(lambda: None), pa.decimal128(10, 2)),
            pa.array(column(chance.random), pa.float64()),
            pa.array(column(lambda: chance.randint(0, 10**15)), pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            pa.array(column(lambda: chance.random() < 0.5), pa.bool_()),
            pa.array(column(lambda: b"\x00\xff"), pa.binary()),
            pa.array(column(lambda: chance.randint(0, 9)), pa.int64()),
        ],
        schema=SCHEMA,
    )


def one_commit(lake: DeltaTable, chance: random.Random) -> None:
    """Add, remove and mark at random, with positions."""
    added = [lake.write(some_rows(chance)) for _ in range(chance.randint(0, 2))]
    removed = [file for file in lake.files if chance.random() < 0.15]
    marked = [
        MarkedRows(file, np.array(sorted(chance.sample(range(file.rows), chance.randint(1, file.rows)))))
        for file in lake.files
        if lake.marks_rows and file not in removed and chance.random() < 0.3
    ]
    txns = {f"app:{chance.randint(0, 3)}": chance.randint(0, 2**62) for _ in range(chance.randint(0, 2))}
    lake.commit(added, removed, marked=marked, txns=txns, metadata={"lsn": 5}, data_change=chance.random() < 0.9)


def facts(lake: DeltaTable) -> dict[str, Any]:
    """What a table knows of itself, and its rows."""
    files = sorted(lake.files, key=lambda file: file.path)
    rows = [tuple(row.values()) for file in files for row in lake.read(file).to_pylist()]
    return {
        "version": lake.version,
        "files": [(file, {name: type(value) for name, value in file.minimum.items()}) for file in files],
        "txns": {app: lake.txn(app) for app in ("app:0", "app:1", "app:2", "app:3", "app:4")},
        "removed": lake.removed if lake.has_deletion_vectors else None,
        "rows": rows,
    }


def opened(path: Path) -> DeltaTable:
    found = DeltaTable.open(str(path))
    assert found is not None
    return found


@pytest.mark.parametrize("feature", FEATURES)
def test_what_is_followed_is_what_the_log_says(tmp_path: Path, feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    refresh = loaded.Loaded.refresh
    monkeypatch.setattr(loaded.Loaded, "refresh", lambda self: (loads.append(1), refresh(self))[1])
    for seed in range(examples(6)):
        chance, path = random.Random(seed), tmp_path / str(seed)
        made = DeltaTable.create(str(path), SCHEMA, {})
        definition: Definition = FEATURES[feature](made.definition, made)
        if definition is not made.definition:
            made.commit(definition=definition)
        writers = [made, opened(path), opened(path)]
        for each in writers:
            assert each.files == []
        loads.clear()
        for _ in range(12):
            writer = chance.choice(writers)
            writer.refresh()
            one_commit(writer, chance)
        for each in writers:
            each.refresh()
        assert not loads, "no commit of our own is loaded by delta-rs"
        known = facts(DeltaTable.open_version(str(path), writers[0].version) or made)
        for each in writers:
            assert facts(each) == known


def test_commits_of_another_kind_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = DeltaTable.create(str(path), pa.schema([("id", pa.int64())]), {})
    reader = opened(path)
    assert reader.files == []
    made.commit([made.write(pa.table({"id": [1]}))])
    write_deltalake(str(path), pa.table({"id": [2]}), mode="append")
    made.refresh()
    made.commit(schema=pa.schema([("id", pa.int64()), ("v", pa.string())]))
    made.commit([made.write(pa.table({"id": [3], "v": ["x"]}))])
    reader.refresh()
    assert (reader.version, reader.schema.names) == (made.version, ["id", "v"])
    assert sorted(row["id"] for file in reader.files for row in reader.read(file).to_pylist()) == [1, 2, 3]


def test_a_commit_behind_one_that_was_not_seen_conflicts(tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = DeltaTable.create(str(path), pa.schema([("id", pa.int64())]), {})
    other = opened(path)
    files: list[DataFile] = [other.write(pa.table({"id": [2]}))]
    made.commit([made.write(pa.table({"id": [1]}))], txns={"position": 5})
    with pytest.raises(CommitConflictError):
        other.commit(files, txns={"position": 5})
    other.refresh()
    assert other.txn("position") == 5 and other.version == 1
