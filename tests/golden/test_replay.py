"""The recorded runs of Debezium 3.6.3, made again: the same configuration and SQL give the same events."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cdc_core.config.connector import ConnectorConfig
from tests.support.cluster import Cluster
from tests.support.envelope_driver import EnvelopeDriver, config_for
from tests.support.event_compare import differences, parse_lines, read_recording

RECORDED = Path(__file__).parent / "recorded"
# Their files select the same of the server.
ALIKE = (
    "stream",
    "stream_time_connect",
    "stream_time_isostring",
    "stream_time_micros",
    "stream_text_modes",
    "stream_txmeta",
)
APART = ("stream_columns", "stream_heartbeat", "stream_decoderbufs")

Changes = Callable[[Cluster, str, Callable[[], None]], None]

RESTS = re.compile(r"^select pg_sleep.*$", re.MULTILINE)

pytestmark = pytest.mark.postgres


def test_the_snapshot_is_debeziums(debian15: Cluster) -> None:
    run = EnvelopeDriver(config_of(debian15, "snapshot"))
    debian15.database(name="golden_snapshot")
    try:
        debian15.run_script("golden_snapshot", RECORDED / "types.sql")
        debian15.run_script("golden_snapshot", RECORDED / "types_rows.sql")
        run.snapshot()
    finally:
        debian15.drop_database("golden_snapshot")
    found = differences(read_recording(RECORDED / "snapshot.jsonl.gz"), parse_lines(run.lines))
    assert not found, "\n".join(found[:20])


def run_resting(cluster: Cluster, database: str, settle: Callable[[], None]) -> None:
    """The recorded SQL. Where it slept, the stream catches up instead: as long as it takes, and no longer."""
    cluster.run_script(database, RECORDED / "types_rows.sql")
    run_script_resting(cluster, database, RECORDED / "changes.sql", settle)


def run_script_resting(cluster: Cluster, database: str, path: Path, settle: Callable[[], None]) -> None:
    """A script in parts, between which the stream catches up."""
    for part in RESTS.split(path.read_text()):
        with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as script:
            script.write(part)
            script.flush()
            cluster.run_script(database, script.name)
        settle()


def replayed(
    cluster: Cluster, configs: Mapping[str, ConnectorConfig], changes: Changes = run_resting
) -> dict[str, EnvelopeDriver]:
    """Drivers of connectors that select the same of the server, by name: the stream of the first one serves them all.

    Its database has the name that its events bear. Those of the others bear the names that their files give.
    """
    runs = {name: EnvelopeDriver(config) for name, config in configs.items()}
    first, *others = runs.values()
    for other in others:
        assert other.config.selection == first.config.selection
        assert other.config.postgres.plugin_name == first.config.postgres.plugin_name
    first.others += others
    database = first.config.postgres.database_dbname
    cluster.database(name=database)
    try:
        cluster.run_script(database, RECORDED / "types.sql")
        first.prepare()
        first.stream(lambda settle: changes(cluster, database, settle))
    finally:
        cluster.drop_database(database)
    return runs


def config_of(cluster: Cluster, kind: str, **changes: str) -> ConnectorConfig:
    """The recorded file, pointed at a test server."""
    return config_for((RECORDED / f"{kind}.properties").read_text(), cluster, **changes)


@pytest.fixture(scope="module")
def alike(debian15: Cluster) -> dict[str, EnvelopeDriver]:
    return replayed(debian15, {kind: config_of(debian15, kind) for kind in ALIKE})


@pytest.mark.parametrize("kind", ALIKE)
def test_the_stream_is_debeziums(alike: dict[str, EnvelopeDriver], kind: str) -> None:
    assert_is_recorded(kind, alike[kind])


@pytest.mark.parametrize("kind", APART)
def test_a_stream_of_its_own_is_debeziums(debian15: Cluster, kind: str) -> None:
    assert_is_recorded(kind, replayed(debian15, {kind: config_of(debian15, kind)})[kind])


def assert_is_recorded(kind: str, run: EnvelopeDriver) -> None:
    found = differences(read_recording(RECORDED / f"{kind}.jsonl.gz"), parse_lines(run.lines))
    assert not found, f"{len(found)} records differ\n" + "\n".join(found[:20])
