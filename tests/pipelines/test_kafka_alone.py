"""A connector that writes to Kafka alone: no lake in its definitions, and a stream that tells what Kafka has."""

import threading
from dataclasses import replace

import dagster as dg

from cdc_core.engine.reports import BatchReport
from cdc_core.lsn import Lsn
from tests.pipelines.fake import ORDERS, PEOPLE, Backlog, FakeEngine, site
from tests.support.waits import patient
from wal2lake.pipelines.assets import topics
from wal2lake.pipelines.connector.files import load_sites
from wal2lake.pipelines.connector.keys import changes_key, topic_key
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.sensors.connector import slot_sensor

FILE = """\
database.hostname=h
database.user=u
database.dbname=d
topic.prefix=shop
wal2lake.sinks=kafka
bootstrap.servers=127.0.0.1:9
table.include.list=public.orders,public.people
"""


class Engine(FakeEngine):
    """Plays a snapshot, too."""

    def initial_snapshot(self):
        self.calls.append(("initial_snapshot",))
        return []


def test_a_file_without_a_lake_has_topics(tmp_path):
    file = tmp_path / "shop.properties"
    file.write_text(FILE)
    sites, broken = load_sites([file])
    assert not broken
    found = definitions_of(sites)
    keys = {"/".join(key.path) for key in found.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {
        *(f"shop/source/public/{name}_source" for name in ("orders", "people")),
        *(f"shop/topic/public/{name}" for name in ("orders", "people")),
        "shop/changes",
    }
    names = {job.name for job in found.resolve_all_job_defs()}
    assert "shop_stream_job" in names
    assert not {
        name for name in names if "snapshot_job" in name and "incremental" not in name and "blocking" not in name
    }
    assert not found.resources


def test_the_stream_takes_the_snapshot_and_reports_the_rows_in_kafka(instance):
    engine = Engine(script=lambda on_batch, *_: on_batch(BatchReport(2, {PEOPLE: 3}, Lsn(6000), 9, 0.1, 0.0)))
    here = replace(site(engine), sinks=("kafka",))
    job = definitions_of([here]).resolve_job_def("shop_stream_job")
    assert job.execute_in_process(instance=instance).success
    assert [call[0] for call in engine.calls][:2] == ["initial_snapshot", "stream"]
    for table, changes in ((ORDERS, 5), (PEOPLE, 3)):
        [record] = instance.fetch_materializations(topic_key(here, table), limit=10).records
        told = record.asset_materialization.metadata
        assert (told["changes"].value, told["lsn"].value) == (changes, "0/1770")
    [record] = instance.fetch_materializations(changes_key(here), limit=10).records
    assert record.asset_materialization.metadata["stopped_by"].value == "idle"


def test_the_sensor_starts_the_stream(instance):
    def said(backlog):
        here = replace(site(Engine(backlog=backlog)), sinks=("kafka",))
        with dg.build_sensor_context(instance=instance, definitions=definitions_of([here])) as context:
            return slot_sensor(here)(context)

    assert said(Backlog()).run_requests
    assert "run shop_stream_job, which takes a snapshot first" in said(Backlog(slot_exists=False)).skip_message


def test_what_dagsters_database_refuses_is_reported_later(instance, monkeypatch):
    refused = threading.Event()

    def refuse_once(context, event, before=topics.logged):
        if not refused.is_set():
            refused.set()
            raise OSError("the database is locked")
        before(context, event)

    def script(on_batch, *_):
        on_batch(BatchReport(2, {PEOPLE: 3}, Lsn(6000), 9, 0.1, 0.0))
        assert refused.wait(patient(60))

    monkeypatch.setattr(topics, "logged", refuse_once)
    here = replace(site(Engine(script=script)), sinks=("kafka",))
    job = definitions_of([here]).resolve_job_def("shop_stream_job")
    config = {"ops": {"shop_stream": {"config": {"report_seconds": 0.0}}}}
    assert job.execute_in_process(instance=instance, run_config=config).success
    for table, changes in ((ORDERS, 5), (PEOPLE, 3)):
        records = instance.fetch_materializations(topic_key(here, table), limit=10).records
        assert sum(record.asset_materialization.metadata["changes"].value for record in records) == changes
