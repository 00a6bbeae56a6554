"""Files that another writer wrote with Arrow's views in their schema: they are read like all others."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.table import DeltaTable


def test_rows_of_views_are_read_by_their_places_and_without_marked_ones(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    table = DeltaTable.create(str(tmp_path / "t"), schema, {})
    table.enable_vectors()
    rows = pa.table({"id": pa.array([1, 2, 3]), "v": pa.array(["a", "b", None], pa.string_view())})
    pq.write_table(rows, tmp_path / "t" / "part-view.parquet")
    file = DataFile("part-view.parquet", (tmp_path / "t" / "part-view.parquet").stat().st_size, 3)
    table.commit([file])
    (file,) = table.files
    assert table.read_at(file, np.array([0, 2])).to_pylist() == [{"id": 1, "v": "a"}, {"id": 3, "v": None}]
    assert table.read_at(file, np.zeros(0, dtype=np.int64)).schema.equals(schema)
    table.commit(marked=[MarkedRows(file, np.array([1]))])
    (file,) = table.files
    assert table.read(file).column("id").to_pylist() == [1, 3]
    assert [each.column("v").to_pylist() for each in table.batches(file)] == [["a", None]]
