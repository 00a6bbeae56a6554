"""Recorded runs of Debezium 3.6.3 with transforms and converters, made again: the same files give the same lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from tests.golden.test_replay import RECORDED, config_of, replayed, run_resting, run_script_resting
from tests.support.cluster import Cluster
from tests.support.envelope_driver import EnvelopeDriver
from tests.support.event_compare import differences, parse_lines
from tests.support.line_compare import decoded, unlike
from tests.support.registry import TestRegistry

pytestmark = pytest.mark.postgres

# Their files select the same of the server, and all of it as the streams to which a transform is added that changes
# nothing.
ALIKE = ("unwrap", "unwrap_rewrite", "schemaless")
APART = ("reroute", "outbox", "cloudevents")
PLAIN = ("stream", "stream_text_modes", "stream_time_connect", "stream_txmeta")
NOTHING = {
    "transforms": "nothing",
    "transforms.nothing.type": "org.apache.kafka.connect.transforms.DropHeaders",
    "transforms.nothing.headers": "none",
}


@pytest.fixture(scope="module")
def alike(debian15: Cluster) -> dict[str, EnvelopeDriver]:
    configs = {kind: config_of(debian15, kind) for kind in ALIKE}
    return replayed(debian15, configs | {kind: config_of(debian15, kind, **NOTHING) for kind in PLAIN})


@pytest.mark.parametrize("kind", ALIKE)
def test_the_lines_are_debeziums(alike: dict[str, EnvelopeDriver], kind: str) -> None:
    assert_are_recorded(kind, lines_of(alike[kind]))


@pytest.mark.parametrize("kind", APART)
def test_the_lines_of_a_stream_of_its_own_are_debeziums(debian15: Cluster, kind: str) -> None:
    changes = outbox_resting if kind == "outbox" else run_resting
    runs = replayed(debian15, {kind: config_of(debian15, kind)}, changes)
    assert_are_recorded(kind, lines_of(runs[kind]))


def assert_are_recorded(kind: str, lines: list[str]) -> None:
    found = unlike(recorded(kind), lines)
    assert not found, f"{len(found)} lines differ\n" + "\n".join(found[:5])


def test_avro_and_its_schemas_are_confluents(debian15: Cluster) -> None:
    with TestRegistry() as registry:
        urls = {f"{side}.converter.schema.registry.url": registry.url for side in ("key", "value")}
        lines = lines_of(replayed(debian15, {"avro": config_of(debian15, "avro", **urls)})["avro"])
    found = unlike(decoded(recorded("avro")), decoded(lines))
    assert not found, f"{len(found)} lines differ\n" + "\n".join(found[:5])


def recorded(kind: str) -> list[str]:
    return gzip.decompress((RECORDED / f"{kind}.jsonl.gz").read_bytes()).decode().split("\n")


def lines_of(run: EnvelopeDriver) -> list[str]:
    assert run.context.outlet is not None
    return [*run.lines, *run.context.outlet.last_lines()]


def outbox_resting(cluster: Cluster, database: str, settle: Callable[[], None]) -> None:
    run_script_resting(cluster, database, RECORDED / "outbox.sql", settle)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_transform_that_changes_nothing(alike: dict[str, EnvelopeDriver], kind: str) -> None:
    """Records of every type as typed columns are those that are written without them."""
    assert_are_plain(kind, lines_of(alike[kind]))


def test_a_transform_that_changes_nothing_of_chosen_columns(debian15: Cluster) -> None:
    kind = "stream_columns"
    assert_are_plain(kind, lines_of(replayed(debian15, {kind: config_of(debian15, kind, **NOTHING)})[kind]))


def assert_are_plain(kind: str, lines: list[str]) -> None:
    found = differences(parse_lines(recorded(kind)), parse_lines(lines))
    assert not found, f"{len(found)} records differ\n" + "\n".join(found[:5])


def test_a_transform_that_changes_nothing_of_a_snapshot(debian15: Cluster) -> None:
    debian15.database(name="golden_snapshot")
    debian15.run_script("golden_snapshot", RECORDED / "types.sql")
    run = EnvelopeDriver(config_of(debian15, "snapshot", **NOTHING))
    try:
        debian15.run_script("golden_snapshot", RECORDED / "types_rows.sql")
        run.snapshot()
    finally:
        debian15.drop_database("golden_snapshot")
    found = differences(parse_lines(recorded("snapshot")), parse_lines(run.lines))
    assert not found, "\n".join(found[:5])
