"""Recorded runs of Debezium 3.6.3 with transforms and converters, made again: the same files give the same lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from tests.golden.test_replay import RECORDED, run_resting, run_script_resting
from tests.support.cluster import Cluster
from tests.support.envelope_driver import EnvelopeDriver, config_for
from tests.support.event_compare import differences, parse_lines
from tests.support.line_compare import decoded, unlike
from tests.support.registry import TestRegistry

pytestmark = pytest.mark.postgres

KINDS = ("unwrap", "unwrap_rewrite", "schemaless", "reroute", "outbox", "cloudevents")


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_are_debeziums(debian15: Cluster, kind: str) -> None:
    found = unlike(recorded(kind), replayed(debian15, kind))
    assert not found, f"{len(found)} lines differ\n" + "\n".join(found[:5])


def test_avro_and_its_schemas_are_confluents(debian15: Cluster) -> None:
    with TestRegistry() as registry:
        urls = {f"{side}.converter.schema.registry.url": registry.url for side in ("key", "value")}
        lines = replayed(debian15, "avro", **urls)
    found = unlike(decoded(recorded("avro")), decoded(lines))
    assert not found, f"{len(found)} lines differ\n" + "\n".join(found[:5])


def recorded(kind: str) -> list[str]:
    return gzip.decompress((RECORDED / f"{kind}.jsonl.gz").read_bytes()).decode().split("\n")


def replayed(cluster: Cluster, kind: str, **settings: str) -> list[str]:
    """The lines of a connector with the recorded file, on a database of the recording's own name."""
    database = f"golden_{kind}"
    cluster.database(name=database)
    cluster.run_script(database, RECORDED / "types.sql")
    run = EnvelopeDriver(config_for((RECORDED / f"{kind}.properties").read_text(), cluster, **settings))

    def changes(settle: Callable[[], None]) -> None:
        if kind == "outbox":
            run_script_resting(cluster, database, RECORDED / "outbox.sql", settle)
        else:
            run_resting(cluster, database, settle)

    try:
        run.prepare()
        run.stream(changes)
    finally:
        cluster.drop_database(database)
    assert run.context.outlet is not None
    return [*run.lines, *run.context.outlet.last_lines()]


NOTHING = {
    "transforms": "nothing",
    "transforms.nothing.type": "org.apache.kafka.connect.transforms.DropHeaders",
    "transforms.nothing.headers": "none",
}


@pytest.mark.parametrize(
    "kind", ["stream", "stream_text_modes", "stream_time_connect", "stream_columns", "stream_txmeta"]
)
def test_a_transform_that_changes_nothing(debian15: Cluster, kind: str) -> None:
    """Records of every type as typed columns are those that are written without them."""
    found = differences(parse_lines(recorded(kind)), parse_lines(replayed(debian15, kind, **NOTHING)))
    assert not found, f"{len(found)} records differ\n" + "\n".join(found[:5])


def test_a_transform_that_changes_nothing_of_a_snapshot(debian15: Cluster) -> None:
    debian15.database(name="golden_snapshot")
    debian15.run_script("golden_snapshot", RECORDED / "types.sql")
    run = EnvelopeDriver(config_for((RECORDED / "snapshot.properties").read_text(), debian15, **NOTHING))
    try:
        debian15.run_script("golden_snapshot", RECORDED / "types_rows.sql")
        run.snapshot()
    finally:
        debian15.drop_database("golden_snapshot")
    found = differences(parse_lines(recorded("snapshot")), parse_lines(run.lines))
    assert not found, "\n".join(found[:5])
