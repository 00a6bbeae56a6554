"""Small tables that are read as a whole, again and again."""

import pyarrow as pa

from cdc_core.lake.delta.log_table import all_rows, append_rows, log_table
from cdc_core.lake.delta.table import DeltaTable

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def test_files_that_an_earlier_call_has_read_are_not_read_again(tmp_path, monkeypatch):
    path, kept, read = str(tmp_path / "log"), dict[str, pa.Table](), []
    reading = DeltaTable.read

    def counted(self, file, *more, **named):
        read.append(file.path)
        return reading(self, file, *more, **named)

    monkeypatch.setattr(DeltaTable, "read", counted)
    log = log_table(None, path, SCHEMA, {})
    assert all_rows(DeltaTable.open(path), SCHEMA, kept).num_rows == 0
    for number in range(3):
        append_rows(log, [{"n": number, "word": "a"}], SCHEMA)
        rows = all_rows(DeltaTable.open(path), SCHEMA, kept)
        assert sorted(rows["n"].to_pylist()) == list(range(number + 1))
        assert len(read) == len(set(read)) == len(kept) == number + 1

    # Another writer's files in their place: what is kept goes with them.
    append_rows(log, [{"n": 3, "word": "b"}], SCHEMA)
    log.commit([log.write(pa.Table.from_pylist([{"n": 9, "word": "c"}], schema=SCHEMA))], removed=log.files)
    assert all_rows(DeltaTable.open(path), SCHEMA, kept).to_pylist() == [{"n": 9, "word": "c"}]
    assert len(kept) == 1
