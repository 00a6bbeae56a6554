"""A re-read of a table with a change data feed: what it keeps in memory does not follow from the table's size."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.apply import change_feed
from cdc_core.lake.apply.kept_rows import commit_merged, merged
from cdc_core.lake.apply.next_content import KeptRows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.reduce.row_states import Truncation
from cdc_core.lake.schema.lake_schema import lake_properties, lake_schema

PART_BYTES = 1 << 20
ROW = pa.struct([("id", pa.int64()), ("text", pa.string()), ("__rescued", pa.map_(pa.string(), pa.string()))])
SCHEMA = lake_schema(ROW)


def rows_from(start: int, end: int, lsn: int, change: int) -> pa.RecordBatch:
    """Every tenth row has another text for each ``change``."""
    ids = np.arange(start, end)
    texts = np.char.add(np.where(ids % 10 == 0, f"{change} ", "same "), (ids * 7_919).astype(str))
    own = {"id": pa.array(ids), "text": pa.array(texts), "__commit_lsn": pa.array(np.full(len(ids), lsn))}
    own["__tx_index"] = pa.array(np.full(len(ids), -1))
    arrays = [own[field.name] if field.name in own else pa.nulls(len(ids), field.type) for field in SCHEMA]
    return pa.record_batch(arrays, schema=SCHEMA)


def reread(folder: str, rows: int, told: multiprocessing.SimpleQueue) -> None:
    """Tells the rows of the feed, and the most bytes that Arrow had."""
    change_feed.PART_BYTES = PART_BYTES
    lake = DeltaTable.create(f"{folder}/lake", SCHEMA, lake_properties(0))
    steps = [(start, start + 10_000) for start in range(0, rows, 10_000)]
    lake.commit(lake.write_stream((rows_from(*step, 1, 1) for step in steps), SCHEMA, rows))
    lake.commit(definition=lake.definition.with_change_feed())
    files = lake.write_stream((rows_from(*step, 2, 2) for step in steps), SCHEMA, rows)
    pa.default_memory_pool().release_unused()
    kept = KeptRows(("id",), Truncation(2, -1, pa.scalar(None, pa.timestamp("us", "UTC"))), part_bytes=PART_BYTES)
    content = merged(lake, files, SCHEMA, kept)
    commit_merged(lake, content, ("id",), {"test": 1}, {})
    told.put((sum(count for _, count in changes(lake)), pa.default_memory_pool().max_memory()))


def changes(lake: DeltaTable) -> list[tuple[str, int]]:
    """The files of changes, and their rows."""
    import pyarrow.parquet as pq

    folder = Path(lake.path) / "_change_data"
    return [(path.name, pq.ParquetFile(path).metadata.num_rows) for path in folder.iterdir()]


@pytest.mark.slow
def test_a_reread_of_a_fed_table_takes_the_memory_of_a_part(tmp_path: Path) -> None:
    context, most = multiprocessing.get_context("spawn"), []
    for rows in (100_000, 400_000):
        told = context.SimpleQueue()
        folder = tmp_path / str(rows)
        folder.mkdir()
        process = context.Process(target=reread, args=(str(folder), rows, told))
        process.start()
        changed, octets = told.get()
        process.join()
        assert changed == 2 * rows // 10
        most.append(octets)
    # The writer of the table in this test has a row group, of 100,000 rows.
    assert most[1] < most[0] + (8 << 20), most
