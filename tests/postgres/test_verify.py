"""The comparison of a lake table with its source, by which the tests and the demo judge."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_core.demo.verify import Comparison, compare
from cdc_core.postgres.options import PostgresOptions
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres


def compared(options: PostgresOptions, table: TableId, path: Path) -> Comparison:
    (found,) = compare(options, {table: path})
    return found


def test_rows_and_columns_that_one_side_lacks_are_differences(pg: Cluster, tmp_path: Path) -> None:
    database = pg.database("verify")
    pg.execute(database, "create table t (id int primary key, v text); insert into t values (1, 'a'), (2, null)")
    options, table = options_for(pg, database), TableId("public", "t")
    assert not compared(options, table, tmp_path / "t").is_equal

    no_texts = pa.nulls(2, pa.map_(pa.string(), pa.string()))
    held = pa.table({"id": pa.array([1, 2], pa.int32()), "v": ["a", None], "__rescued": no_texts})
    write_deltalake(tmp_path / "t", held)
    assert compared(options, table, tmp_path / "t").is_equal

    pg.execute(database, "update t set v = 'b' where id = 1")
    found = compared(options, table, tmp_path / "t")
    assert (found.missing, found.extra, found.absent) == (1, 1, ())

    # A column that has not reached the lake yet is a difference and no error: who waits for equality looks again.
    pg.execute(database, "update t set v = 'a' where id = 1; alter table t add column more int")
    found = compared(options, table, tmp_path / "t")
    assert (found.missing, found.extra, found.absent, found.is_equal) == (0, 0, ("more",), False)
    pg.drop_database(database)
