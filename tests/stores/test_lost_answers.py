"""Requests that the store carries out and whose answer is lost: nothing is lost, doubled, or deleted while in use."""

from __future__ import annotations

import signal
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.storage import Location
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from tests.stores.test_kill import CHANGES, SCHEMA, TABLES, read, source
from tests.support.object_stores import Bucket
from tests.support.store_proxy import CUT, LOSE, LOSE_500, REFUSE, StoreProxy
from tests.support.waits import wait_until

pytestmark = [pytest.mark.stores, pytest.mark.slow]

IDS = pa.schema([("id", pa.int64())])
STEPS = {
    "data of a changelog": r"PUT .*__changelog/.*parquet",
    "entry of a changelog": r"PUT .*__changelog/.*_delta_log/\d+\.json",
    "data of a lake table": r"PUT .*test/public/.*parquet",
    "entry of a lake table": r"PUT .*test/public/.*_delta_log/\d+\.json",
    "record of the round": r"PUT .*__rounds/_delta_log/\d+\.json",
}


def table(bucket: Bucket, store: StoreProxy, name: str) -> DeltaTable:
    return DeltaTable.create(Location(bucket.path(name), bucket.by(store.url).storage), IDS, {})


def ids(bucket: Bucket, name: str) -> list[int]:
    found = QueryBuilder().register("t", bucket.table(name)).execute("select id from t order by id").read_all()
    return [int(each) for each in pa.table(found).column("id").to_pylist()]


@pytest.mark.parametrize("fault", [LOSE, LOSE_500, REFUSE, CUT])
def test_a_commit_is_made_once_whatever_becomes_of_its_answer(bucket, store, fault):
    """Without a position that would tell: rows of a log of wal2lake's own have none."""
    log = table(bucket, store, "log")
    for number in range(3):
        store.fail(fault, r"PUT .*_delta_log/\d+\.json")
        rows = pa.table({"id": [number]}, IDS)
        on_conflict(lambda rows=rows: log.commit([log.write(rows)]), log)
        assert store.heal() == 0, "the fault did not occur"
    assert log.version == 3
    assert ids(bucket, "log") == [0, 1, 2]


@pytest.mark.parametrize("fault", [LOSE, LOSE_500])
def test_a_compaction_whose_answer_was_lost_keeps_its_file(bucket, store, fault):
    """It finds the files that it moved removed, as after another writer's compaction, and would discard its own."""
    made = table(bucket, store, "moved")
    for number in range(16):
        made.commit([made.write(pa.table({"id": [number]}, IDS))])
    store.fail(fault, r"PUT .*_delta_log/\d+\.json")
    assert compact(made) == 16
    assert store.heal() == 0, "the fault did not occur"
    assert ids(bucket, "moved") == list(range(16))


def test_of_two_writers_one_makes_a_version_also_if_its_answer_is_lost(bucket, store):
    first = table(bucket, store, "both")
    second = DeltaTable.open(first.path)
    assert second is not None
    for number in range(4):
        store.fail(LOSE, r"PUT .*_delta_log/\d+\.json")
        for writer, own in ((first, 10), (second, 20)):
            rows = pa.table({"id": [own + number]}, IDS)
            on_conflict(lambda w=writer, r=rows, n=number: w.commit([w.write(r)], txns={"a": n}), writer)
    assert ids(bucket, "both") == [10, 11, 12, 13, 20, 21, 22, 23]


def positions(bucket: Bucket, name: str) -> Counter[tuple[Any, ...]]:
    """How often each change is in a changelog."""
    opened = bucket.table(f"lake/test/__changelog/public/{name}")
    found = QueryBuilder().register("t", opened).execute("select __commit_lsn, __tx_index from t").read_all()
    return Counter(tuple(row.values()) for row in pa.table(found).to_pylist())


def test_a_run_writes_each_change_once_whichever_answer_is_lost(pg, program, bucket, store, connector_file):
    database = pg.database(f"{bucket.kind}_lost")
    pg.execute(database, SCHEMA)
    file = connector_file(database, bucket.by(store.url), **{"wal2lake.merge.rewrite.max.bytes": "12000"})

    def is_equal() -> bool:
        return all(read(bucket, name) == source(pg, database, name) for name in TABLES)

    with program.started("run", file, "--max-seconds", "1500") as run:
        run.wait_for("streaming", 120)
        pg.execute(database, CHANGES.format(r=1))
        wait_until(is_equal, 90, "the first changes", pause=0.3)
        number = 1
        for fault in (LOSE, LOSE_500):
            for step, pattern in STEPS.items():
                number += 1
                store.fail(fault, pattern)
                pg.execute(database, CHANGES.format(r=number))
                wait_until(lambda: store.left() == 0, 90, f"{fault}: {step}", pause=0.2)
                wait_until(is_equal, 90, f"the changes after {fault}: {step}", pause=0.3)
        # The client gives up, and the run tries again later; it must find what was carried out.
        store.fail(LOSE, STEPS["entry of a lake table"])
        store.fail(CUT, STEPS["entry of a lake table"], times=11)
        pg.execute(database, CHANGES.format(r=number + 1))
        wait_until(lambda: store.left() == 0, 300, "attempts that fail", pause=0.5)
        wait_until(is_equal, 120, "the changes after that", pause=0.3)
        assert run.end(signal.SIGINT) == 0, run.said()[-3000:]
        assert "Traceback" not in run.said(), run.said()[-3000:]
    kept = program.run("maintain", file, "--json")
    assert kept.returncode == 0, kept.stderr[-3000:]
    assert is_equal()
    for name in TABLES:
        assert max(positions(bucket, name).values()) == 1, f"a change is in the changelog of {name} twice"
