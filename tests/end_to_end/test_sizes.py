"""What is large in another way than many rows, small enough for every run of tests: a first snapshot, transactions."""

import pytest

from benchmarks.macro.sizes import large_rows, many_columns, many_tables
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("make", [large_rows, many_columns, many_tables])
def test_a_snapshot_and_transactions_are_equal(debian15, program, tmp_path, make):
    case = make(True)
    database = debian15.database("sizes")
    debian15.execute(database, f"begin; {case.create} commit")
    settings = {"schema.include.list": "public", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "sizes.properties", debian15.properties(database, **settings))
    tables = [TableId("public", name) for name in case.tables]
    for step, statements in [("snapshot", ""), *case.transactions]:
        debian15.execute(database, f"begin; {statements}; commit")
        done = program.stream(file)
        assert done.returncode == 0, (step, done.stderr[-3000:])
        assert difference(file, tables) == [], step
    assert program.paused(file) == {}
    debian15.drop_database(database)
