"""The recorded incremental snapshot of Debezium 3.6.3, made again by the whole road."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc_core.config.properties_file import parse_properties
from tests.support.cluster import Cluster
from tests.support.event_compare import Record, differences, read_recording
from tests.support.events import SETTLE, Capture, Running
from tests.support.waits import wait_until

RECORDED = Path(__file__).parent / "recorded"
KIND = "incremental"
OWN = ("database.hostname", "database.port", "database.user", "database.password")

# The SQL of both stands in the recorded events.
SIGNALS = (
    (
        "ad-hoc-1",
        '{"data-collections": ["inventory.t_pk2","inventory.customers","inventory.t_basic"],"type":"incremental"}',
        61,
    ),
    (
        "ad-hoc-2",
        '{"data-collections": ["inventory.t_num"],"type":"incremental",'
        '"additional-conditions":[{"data-collection":"inventory.t_num","filter":"id > 3"}]}',
        69,
    ),
)

pytestmark = pytest.mark.postgres


UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[0-9:.]+Z")


def masked(records: list[Record]) -> list[Record]:
    """Rows of the signal table without the ids and times that no two runs share."""
    for record in records:
        if record["topic"].endswith(".debezium_signal"):
            for row in (record["key"]["payload"], record["value"]["payload"]["after"]):
                for name, text in row.items():
                    row[name] = INSTANT.sub("<instant>", UUID.sub("<uuid>", text))
    return records


def is_settling(record: Record) -> bool:
    return (record["key"] or {}).get("payload") == {"prefix": SETTLE}


def test_the_incremental_snapshot_is_debeziums(debian15: Cluster, tmp_path: Path) -> None:
    database = debian15.database(name=f"golden_{KIND}")
    output = tmp_path / "out.jsonl"
    output.touch()
    try:
        debian15.run_script(database, RECORDED / "types.sql")
        recorded = dict(parse_properties((RECORDED / f"{KIND}.properties").read_text(), "test"))
        properties = {name: value for name, value in recorded.items() if name not in OWN}
        capture = Capture(debian15, properties, database, output)
        running = Running(capture)
        running.start()
        try:
            debian15.run_script(database, RECORDED / "types_rows.sql")
            running.settle()
            for name, data, last in SIGNALS:
                capture.sql(f"insert into inventory.debezium_signal values ('{name}', 'execute-snapshot', '{data}')")
                wait_until(lambda last=last: len(capture.records()) > last, 30, "the rows of the chunks")
            running.settle()
        finally:
            running.stop()
        running.check()
        made = [record for record in read_recording(output) if not is_settling(record)]
        found = differences(masked(read_recording(RECORDED / f"{KIND}.jsonl.gz")), masked(made))
    finally:
        debian15.drop_database(database)
    assert not found, f"{len(found)} records differ\n" + "\n".join(found[:20])
