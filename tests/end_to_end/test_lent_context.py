"""Runs of the tests share a Spark context as if each had started it: nothing of one reaches into the next."""

import pytest

from cdc_core import failpoints
from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

TABLE = TableId("public", "t")


def test_a_context_is_lent_after_a_run_that_ended_well_and_with_the_same_settings(pg, program, tmp_path):
    database = pg.database("lent")
    pg.execute(database, "create table t (id int primary key)")

    def connector(name, **more):
        settings = {"table.include.list": "public.t", **lake_settings(tmp_path), **more}
        return write_properties(tmp_path / f"{name}.properties", pg.properties(database, **settings))

    def context_of(file, key):
        pg.execute(database, f"insert into t values ({key})")
        done = program.stream(file)
        assert done.returncode == 0, done.stderr
        assert difference(file, [TABLE]) == []
        return program.context

    file, other = connector("usual"), connector("other", **{"wal2lake.spark.spark.sql.debug.maxToStringFields": "11"})
    first = context_of(file, 1)
    assert first is not None and context_of(file, 2) == first
    assert len({first, context_of(other, 3), context_of(file, 4)}) == 3

    # In the run itself: nothing of it is at work any more.
    pg.execute(database, "insert into t values (5)")
    program.killed_at(failpoints.BEFORE_CONFIRM, file)
    assert program.context is None
    context_of(file, 6)
