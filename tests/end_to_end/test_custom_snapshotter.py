"""A snapshot mode of the user's own: which rows are read, which locks are taken, and the end of the snapshot."""

import json

import pytest

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from cdc_core.engine.reports import Until
from cdc_core.errors import ConfigError
from cdc_core.option import MASK
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

LOCKED = "exists (select from pg_locks where locktype = 'advisory' and objid = 4711)"
A, B = TableId("public", "a"), TableId("public", "b")


class Mode:
    """Reads some rows of one table, under a lock of its own."""

    completed = 0

    def init(self, properties):
        self.slot = properties["slot.name"]
        assert properties["database.password"] == MASK

    def should_snapshot_data(self, offset_exists, snapshot_in_progress):
        return not offset_exists or snapshot_in_progress

    def should_stream(self):
        return True

    def should_snapshot_on_data_error(self):
        return False

    def build_snapshot_query(self, table):
        assert self.slot
        return f"select * from {table} where id <= 2 and {LOCKED} -- some" if table == "public.a" else None

    def snapshot_table_locking_statement(self, lock_timeout_ms, tables):
        assert lock_timeout_ms == 10_000 and tables == ["public.a"]
        return "set local lock_timeout = 0; select pg_advisory_lock(4711)"

    def snapshot_transaction_isolation_level_statement(self):
        return "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"

    def snapshot_completed(self):
        Mode.completed += 1


class Serializable(Mode):
    def snapshot_transaction_isolation_level_statement(self):
        return "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"


class FromSnapshot(Mode):
    def should_stream_events_starting_from_snapshot(self):
        return True


class Broken(Mode):
    def build_snapshot_query(self, table):
        raise ValueError("a text that may contain anything")


def test_a_snapshot_mode_decides_what_is_read(pg, spark, tmp_path):
    database = pg.database("custom")
    pg.execute(
        database,
        "create table a (id int primary key); create table b (id int primary key);"
        "insert into a select generate_series(1, 5); insert into b values (1)",
    )

    def connector(mode, **more):
        settings = {"snapshot.mode": "custom", "snapshot.mode.custom.name": f"{__name__}.{mode}"}
        file = tmp_path / f"{mode}.properties"
        return write_properties(file, pg.properties(database, **lake_settings(tmp_path), **settings, **more))

    for mode, said in (("Serializable", "another level than REPEATABLE READ"), ("Broken", "failed \\(ValueError\\)")):
        with pytest.raises(ConfigError, match=said) as caught:
            Connector.from_file(connector(mode)).initial_snapshot(spark)
        assert "anything" not in str(caught.value)
    said = [found.found for found in Connector.from_file(connector("FromSnapshot")).check() if not found.ok]
    assert ["FromSnapshot.should_stream_events_starting_from_snapshot" in one for one in said] == [True], said
    file = connector("Mode")
    (report,) = Connector.from_file(file).initial_snapshot(spark)
    assert (report.table, report.rows, Mode.completed) == (A, 2, 1)
    assert [row["id"] for row in rows(lake_path(load(file), A), "select id from t order by id")] == [1, 2]
    assert not lake_path(load(file), B).exists()
    # A row that the statement left out is no row that is missing.
    pg.execute(database, "delete from a where id = 5; insert into a values (6)")
    done = Connector.from_file(file).stream(Until(idle_seconds=0.5), spark)
    assert done.failed == {}
    assert [row["id"] for row in rows(lake_path(load(file), A), "select id from t order by id")] == [1, 2, 6]
    lines = tmp_path / "lines.jsonl"
    events = Connector.from_file(connector("Mode", **{"slot.name": f"{database}_events"}))
    assert events.envelopes(lines, Until(idle_seconds=0.2)) == 2
    found = [json.loads(line)["value"]["payload"] for line in lines.read_text().splitlines()]
    assert [(one["op"], one["after"]["id"]) for one in found] == [("r", 1), ("r", 2)]
    assert Mode.completed == 2
