"""Two connectors with different slots and the same lake tables: the second is refused while the first runs."""

import signal

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

T = TableId("public", "t")
CLAIMING = """
select distinct l.pid from pg_locks l join pg_database d on d.oid = l.database
where l.locktype = 'advisory' and l.granted and d.datname = %s
"""


def test_a_second_connector_with_the_same_lake_tables_is_refused(pg, program, tmp_path):
    database = pg.database("shared")
    pg.execute(database, "create table t (id int primary key, v text); insert into t values (1, 'a')")

    def connector(slot, folder, **more):
        settings = {**lake_settings(folder), "slot.name": slot, "publication.name": f"{slot}_publication", **more}
        return write_properties(tmp_path / f"{slot}.properties", pg.properties(database, **settings))

    slots = [f"{database}_{letter}" for letter in "abc"]
    first, second = connector(slots[0], tmp_path), connector(slots[1], tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    linked = connector(slots[2], tmp_path, **{"wal2lake.lake.path": f"file://{tmp_path}/link"})

    with program.started("run", first, "--max-seconds", "1500") as running:
        claiming = set()

        def streams():
            claiming.update(pg.execute("postgres", CLAIMING, [database]))
            return "streaming" in running.said()

        assert wait_until(streams, 90, "the stream") and streams()
        assert len(claiming) == 1, "the run did not give up its claim after the snapshot"
        assert difference(first, [T]) == []
        for command, file in (("run", second), ("snapshot", second), ("run", linked)):
            done = program.run(command, file, own_java=True)
            assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
            assert "writing to the lake tables" in done.stderr and "topic.prefix" in done.stderr, done.stderr[-3000:]
        pg.execute(database, "insert into t values (2, 'b')")
        wait_until(lambda: difference(first, [T]) == [], 60, "the change in the lake")
        # Events are not written to the lake.
        events = ("--output", str(tmp_path / "events.jsonl"), "--until-idle", "1")
        assert program.run("envelopes", second, *events, own_java=True).returncode == 0
        assert running.end(signal.SIGTERM) == 0, running.said()[-3000:]
    found = pg.execute("postgres", "select slot_name from pg_replication_slots where database = %s", [database])
    assert {name for (name,) in found} == set(slots[:2]), "the refused runs made no slot"

    # On another machine, or of a release without this claim: the slot of the lake's record has a consumer.
    with pg.connect(database) as other:
        other.execute("select pg_advisory_lock(hashtextextended('wal2lake:' || %s, 0))", [slots[0]])
        done = program.run("run", second, "--until-idle", "1")
        assert done.returncode == 1 and f"uses slot {slots[0]} now" in done.stderr, done.stderr[-3000:]

    # The first goes on; and slot.name may be changed when no run uses the former slot.
    pg.execute(database, "insert into t values (3, 'c')")
    assert program.stream(first).returncode == 0
    assert difference(first, [T]) == []
    pg.execute(database, "insert into t values (4, 'd')")
    assert program.stream(second).returncode == 0
    assert difference(second, [T]) == []
