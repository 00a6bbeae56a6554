"""Every row of a snapshot bears the marker of its place."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from cdc_core.events.envelope.record import lines
from cdc_core.events.envelope.snapshot_events import SnapshotRecords
from cdc_core.events.envelope.table_events import EventSnapshot
from cdc_core.schema.table import TableId
from tests.unit.events.envelope.tiny import CUSTOMERS, NOW, columns, events

FACTS = EventSnapshot(lsn=117_873_992, xid=1186, ts_us=1_500_000_000_000_001)
FIRST, FIRST_IN, LAST_IN = "first", "first_in_data_collection", "last_in_data_collection"


def markers(*tables: list[int]) -> list[str]:
    """Markers of a snapshot over tables, each given as the sizes of its batches."""
    snapshot, out = SnapshotRecords(), []
    for number, sizes in enumerate(tables):
        made = events(CUSTOMERS.__class__(TableId("s", f"t{number}"), 1, CUSTOMERS.columns, ("id",)))
        batches = [columns(made.table, [{"id": "1", "name": "n"}] * size) for size in sizes]
        for block in snapshot.table(made, batches, FACTS):
            out += lines(block)
    out += lines(snapshot.finish())
    return [json.loads(line)["value"]["payload"]["source"]["snapshot"] for line in out]


@pytest.mark.parametrize(
    ("tables", "wanted"),
    [
        ([[0]], []),
        ([[1]], ["last"]),
        ([[2]], [FIRST, "last"]),
        ([[1], [1]], [FIRST, "last"]),
        ([[1], [1], [1]], [FIRST, LAST_IN, "last"]),
        ([[1], [2], [0]], [FIRST, FIRST_IN, "last"]),
        ([[0], [3], [2], []], [FIRST_IN, "true", LAST_IN, FIRST_IN, "last"]),
        ([[1], [4]], [FIRST, FIRST_IN, "true", "true", "last"]),
    ],
)
def test_markers(tables: list[list[int]], wanted: list[str]) -> None:
    assert markers(*tables) == wanted


@pytest.mark.parametrize("sizes", [[5], [1, 4], [4, 1], [1, 1, 1, 1, 1], [0, 2, 0, 3, 0]])
def test_how_a_table_is_cut_makes_no_difference(sizes: list[int]) -> None:
    assert markers([2], sizes, [1]) == [FIRST, LAST_IN, FIRST_IN, "true", "true", "true", LAST_IN, "last"]


def test_a_read_shows_the_snapshots_position() -> None:
    snapshot = SnapshotRecords()
    for _ in snapshot.table(events(), [columns(CUSTOMERS, [{"id": "1", "name": "n"}])], FACTS):
        pass
    record = json.loads(lines(snapshot.finish())[0])
    payload = record["value"]["payload"]
    assert (payload["op"], payload["before"], payload["after"]["id"]) == ("r", None, 1)
    assert record["key"]["payload"] == {"id": 1}
    source = payload["source"]
    assert source["sequence"] == '[null,"117873992"]'
    assert (source["lsn"], source["txId"], source["ts_us"]) == (117_873_992, 1186, 1_500_000_000_000_001)
    assert payload["transaction"] is None


def test_a_row_of_an_incremental_snapshot_shows_the_streams_place_only() -> None:
    facts = EventSnapshot(lsn=600, xid=None, ts_us=1_500_000_000_000_001, prior_end_lsn=500, is_incremental=True)
    rows = columns(CUSTOMERS, [{"id": "1", "name": "n"}])
    table = events().reads(rows, pa.array(["incremental"], type=pa.large_string()), facts, NOW)
    source = json.loads(lines(table)[0])["value"]["payload"]["source"]
    assert (source["snapshot"], source["sequence"], source["lsn"], source["txId"]) == (
        "incremental",
        '["500","600"]',
        None,
        None,
    )
