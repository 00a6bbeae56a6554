"""Small tables that are read as a whole, again and again."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.delta import log_table as module
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


@pytest.fixture
def read(monkeypatch):
    """The files that were read, in order."""
    found, reading = [], DeltaTable.read

    def noted(self, file, *more, **named):
        found.append(file.path)
        return reading(self, file, *more, **named)

    monkeypatch.setattr(DeltaTable, "read", noted)
    return found


def numbers(path, schema=SCHEMA):
    return sorted(all_rows(DeltaTable.open(path), schema)["n"].to_pylist())


def test_files_that_were_read_before_are_not_read_again(tmp_path, read):
    path = str(tmp_path / "log")
    log = log_table(None, path, SCHEMA, {})
    assert numbers(path) == []
    for number in range(3):
        append_rows(log, [{"n": number, "word": "a"}], SCHEMA)
        assert numbers(path) == numbers(path) == list(range(number + 1))
        assert len(read) == len(set(read)) == number + 1

    # Files in their place: rows of files that the table no longer has are not among its rows.
    append_rows(log, [{"n": 3, "word": "b"}], SCHEMA)
    log.commit([log.write(pa.Table.from_pylist([{"n": 9, "word": "c"}], schema=SCHEMA))], removed=log.files)
    assert numbers(path) == [9]


def test_another_schema_and_another_table_of_the_same_place_have_their_own_rows(tmp_path, read):
    path, other = str(tmp_path / "log"), str(tmp_path / "other")
    append_rows(log_table(None, path, SCHEMA, {}), [{"n": 1, "word": "a"}], SCHEMA)
    assert numbers(path) == [1]
    wider = SCHEMA.append(pa.field("since", pa.string()))
    log_table(None, path, wider, {})
    assert all_rows(DeltaTable.open(path), wider).to_pylist() == [{"n": 1, "word": "a", "since": None}]
    assert numbers(path) == [1]

    append_rows(log_table(None, other, SCHEMA, {}), [{"n": 2, "word": "b"}], SCHEMA)
    shutil.rmtree(path)
    shutil.copytree(other, path)
    assert numbers(path) == [2]


def test_rows_that_are_marked_as_deleted_are_not_read(tmp_path, read):
    path = str(tmp_path / "log")
    log = log_table(None, path, SCHEMA, {})
    append_rows(log, [{"n": number, "word": "a"} for number in range(4)], SCHEMA)
    assert numbers(path) == [0, 1, 2, 3]
    log.enable_vectors()
    log.refresh()
    for gone, left in ((1, [0, 2, 3]), (3, [0, 2])):
        log.commit([], marked=[MarkedRows(log.files[0], np.array([gone]))])
        assert numbers(path) == left


def test_the_rows_that_are_kept_have_a_bound(tmp_path, read, monkeypatch):
    path = str(tmp_path / "log")
    log = log_table(None, path, SCHEMA, {})
    for number in range(5):
        append_rows(log, [{"n": number, "word": "a" * 100}], SCHEMA)
    size = all_rows(DeltaTable.open(path), SCHEMA).nbytes // 5
    for most_files, most_bytes in ((3, 1 << 20), (100, 3 * size + 10)):
        kept = module._KeptRows(most_files, most_bytes)
        monkeypatch.setattr(module, "_kept", kept)
        for schema in (SCHEMA, SCHEMA.remove(1), SCHEMA):
            assert numbers(path, schema) == [0, 1, 2, 3, 4]
            assert len(kept._rows) == 3 or schema is not SCHEMA
            assert kept._bytes == sum(rows.nbytes for rows in kept._rows.values())
