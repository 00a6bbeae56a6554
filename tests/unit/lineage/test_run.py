"""The events of one run: their order, what is repeated and what is not; all conform to OpenLineage's schemas."""

import dataclasses
import uuid

import pytest

from cdc_core.described import DescribedColumn, DescribedTable, DescribedTopic
from cdc_core.lineage.datasets import SourceDatabase, Written, location
from cdc_core.lineage.run import Job, LineageRun, MergedUpTo
from cdc_core.schema.connect import ConnectSchema
from cdc_core.schema.table import TableId
from tests.support.clock import Clock
from tests.support.openlineage import recorded, wrong

ORDERS = TableId("public", "orders")
TABLE = DescribedTable(
    ORDERS,
    "",
    (DescribedColumn("id", "int4"), DescribedColumn("note", "text", "what was said")),
    (
        DescribedColumn("id", "int", "", "id"),
        DescribedColumn("note", "string", "what was said", "note", "hashed a1b2"),
        DescribedColumn("__commit_lsn", "bigint", "LSN"),
    ),
    "s3a://bucket/lake/shop/public/orders",
)


@pytest.fixture
def events():
    return []


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def run(events, clock):
    job = Job("ns", "shop.0", "what it does", [("env", "prod")], [("Mario", "maintainer")], ["topic.prefix=shop"])
    return LineageRun(job, SourceDatabase("db", 5432, "shop"), events.append, clock)


def kinds(events):
    return [event["eventType"] for event in events]


def test_one_run(run, events, clock):
    run.start()
    run.opened([TABLE])
    run.opened([TABLE])
    run.read(ORDERS, Written(5, 0))
    run.merged({ORDERS: Written(2, 1)}, MergedUpTo("0/10", 3, 0.5))
    clock.now = 60.0
    run.merged({ORDERS: Written(3, 2)}, MergedUpTo("0/20", 4, 1.5))
    run.merged({ORDERS: Written(1, 3)}, MergedUpTo("0/30", 0, 0.0))
    run.end()
    assert kinds(events) == ["START", *["RUNNING"] * 5, "COMPLETE"]
    assert [problem for event in events for problem in wrong(event)] == []
    assert {event["run"]["runId"] for event in events} == {run.run_id}
    assert uuid.UUID(run.run_id).version == 7
    rows = [
        (one["outputFacets"]["outputStatistics"]["rowCount"], one["facets"]["version"]["datasetVersion"])
        for event in events
        for one in event["outputs"]
        if "outputFacets" in one
    ]
    assert rows == [(5, "0"), (5, "2"), (1, "3")]
    progress = events[4]["run"]["facets"]["wal2lake_progress"]
    assert (progress["lsn"], progress["lagBytes"], progress["lagSeconds"]) == ("0/20", 4, 1.5)


def test_a_table_with_a_topic_has_two_outputs(run, events):
    value = ConnectSchema("struct", fields=(("op", ConnectSchema("string")), ("n", ConnectSchema("double", doc="n"))))
    run.opened([dataclasses.replace(TABLE, topic=DescribedTopic("kafka:9092", "shop.public.orders", value))])
    _, topic = events[-1]["outputs"]
    assert wrong(events[-1]) == []
    assert (topic["namespace"], topic["name"]) == ("kafka://kafka:9092", "shop.public.orders")
    assert topic["facets"]["datasetType"]["datasetType"] == "STREAM"
    fields = [{"name": "op", "type": "STRING"}, {"name": "n", "type": "FLOAT64", "description": "n"}]
    assert topic["facets"]["schema"]["fields"] == fields


def test_datasets(run, events):
    run.opened([TABLE])
    (source,), (lake,) = events[-1]["inputs"], events[-1]["outputs"]
    assert (source["namespace"], source["name"]) == ("postgres://db:5432", "shop.public.orders")
    assert source["facets"]["schema"]["fields"] == [
        {"name": "id", "type": "int4"},
        {"name": "note", "type": "text", "description": "what was said"},
    ]
    assert (lake["namespace"], lake["name"]) == ("s3://bucket", "lake/shop/public/orders")
    fields = lake["facets"]["columnLineage"]["fields"]
    assert set(fields) == {"id", "note"}
    assert fields["note"]["inputFields"] == [
        {
            "namespace": "postgres://db:5432",
            "name": "shop.public.orders",
            "field": "note",
            "transformations": [
                {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "hashed", "masking": True}
            ],
        }
    ]


def test_a_table_is_reported_again_when_it_changes(run, events):
    run.opened([TABLE])
    run.opened([dataclasses.replace(TABLE, comment="orders")])
    assert [len(event["inputs"]) for event in events] == [0, 1, 1]


def test_without_a_lake_there_are_no_outputs(run, events):
    run.opened([dataclasses.replace(TABLE, lake=(), location="")])
    assert len(events[-1]["inputs"]) == 1 and events[-1]["outputs"] == []


def test_a_fault_is_reported_once_an_attempt(run, events):
    run.start()
    run.opened([TABLE])
    run.merged({ORDERS: Written(2, 1)}, MergedUpTo("0/10", 3, 0.5))
    run.failed("The server is away.", "  File x\n")
    run.failed("The server is away.", "  File y\n")
    run.opened([TABLE])
    run.end()
    assert kinds(events) == ["START", "RUNNING", "RUNNING", "RUNNING", "FAIL", "RUNNING", "COMPLETE"]
    assert events[4]["run"]["facets"]["errorMessage"]["message"] == "The server is away."
    assert [problem for event in events for problem in wrong(event)] == []


def test_a_run_that_ended_by_an_error_is_not_complete(run, events):
    run.start()
    run.failed("no", "")
    run.end()
    assert kinds(events) == ["START", "FAIL"]


def test_rows_of_a_table_that_is_not_known_are_not_reported(run, events):
    run.merged({ORDERS: Written(2, 1)}, MergedUpTo("0/10", 3, 0.5))
    run.read(ORDERS, Written(2, 1))
    run.end()
    assert kinds(events) == ["COMPLETE"]


@pytest.mark.parametrize(
    ("path", "dataset"),
    [
        ("/data/lake/shop/public/orders", ("file", "/data/lake/shop/public/orders")),
        ("file:///data/lake", ("file", "/data/lake")),
        ("s3a://bucket/lake/orders", ("s3://bucket", "lake/orders")),
        ("gs://bucket/lake", ("gs://bucket", "lake")),
        ("abfss://container@account.dfs/lake", ("abfss://container@account.dfs", "lake")),
    ],
)
def test_the_name_of_a_location(path, dataset):
    assert location(path) == dataset


def test_the_schemas_refuse_what_they_do_not_have(run, events):
    run.opened([TABLE])
    events[-1]["outputs"][0]["facets"]["columnLineage"]["fields"]["note"].pop("inputFields")
    events[-1]["job"]["facets"]["jobType"].pop("integration")
    assert len(wrong(events[-1])) == 2


def test_the_event_of_a_fault_is_debeziums(run, events):
    run.start()
    run.failed("no", "")
    theirs = next(event for event in recorded("debezium_fail") if event["eventType"] == "FAIL")
    ours = events[-1]
    for part in ("run", "job"):
        assert set(ours[part]["facets"]) == set(theirs[part]["facets"])
    assert set(ours["run"]["facets"]["errorMessage"]) == set(theirs["run"]["facets"]["errorMessage"])
    assert set(ours) == set(theirs)
