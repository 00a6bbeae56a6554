"""The recorded runs of Debezium 3.6.3, made again: the same configuration and SQL give the same events."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.envelope_driver import EnvelopeDriver, config_for
from tests.support.event_compare import differences, parse_lines, read_recording

RECORDED = Path(__file__).parent / "recorded"
STREAMS = (
    "stream",
    "stream_time_connect",
    "stream_time_isostring",
    "stream_time_micros",
    "stream_text_modes",
    "stream_columns",
    "stream_txmeta",
    "stream_heartbeat",
    "stream_decoderbufs",
)

RESTS = re.compile(r"^select pg_sleep.*$", re.MULTILINE)

pytestmark = pytest.mark.postgres


def driver(cluster: Cluster, kind: str) -> EnvelopeDriver:
    """A connector on a fresh database of the recording's own name, for events bear it."""
    cluster.database(name=f"golden_{kind}")
    cluster.run_script(f"golden_{kind}", RECORDED / "types.sql")
    return EnvelopeDriver(config_for((RECORDED / f"{kind}.properties").read_text(), cluster))


def test_the_snapshot_is_debeziums(debian15: Cluster) -> None:
    run = driver(debian15, "snapshot")
    try:
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


@pytest.mark.parametrize("kind", STREAMS)
def test_the_stream_is_debeziums(debian15: Cluster, kind: str) -> None:
    database = f"golden_{kind}"
    run = driver(debian15, kind)
    try:
        run.prepare()
        run.stream(lambda settle: run_resting(debian15, database, settle))
    finally:
        debian15.drop_database(database)
    found = differences(read_recording(RECORDED / f"{kind}.jsonl.gz"), parse_lines(run.lines))
    assert not found, f"{len(found)} records differ\n" + "\n".join(found[:20])
