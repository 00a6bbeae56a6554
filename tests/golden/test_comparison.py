"""The comparison finds what differs and nothing else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.event_compare import Record, differences, read_recording

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="module")
def recorded() -> list[Record]:
    return read_recording(RECORDED / "stream_txmeta.jsonl.gz")


def change(records: list[Record], number: int, *path: str | int, value: Any) -> list[Record]:
    changed = copy.deepcopy(records)
    node: Any = changed[number]
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return changed


def test_a_run_agrees_with_itself(recorded: list[Record]) -> None:
    assert differences(recorded, copy.deepcopy(recorded)) == []


def test_clocks_and_runs_may_differ(recorded: list[Record]) -> None:
    changed = change(recorded, 1, "value", "payload", "source", "ts_us", value=1)
    changed = change(changed, 1, "headers", 3, "value", "payload", value="another run")
    assert differences(recorded, changed) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("topic",), "another"),
        (("key", "payload", "id"), 77),
        (("value", "payload", "after", "first_name"), "Zoe"),
        (("value", "payload", "source", "ts_us"), None),
        (("value", "payload", "source", "lsn"), 1),
        (("value", "payload", "source", "sequence"), "[null,null]"),
        (("value", "payload", "transaction", "total_order"), 9),
        (("value", "payload", "op"), "u"),
        (("value", "schema", "fields", 0, "optional"), False),
        (("headers",), []),
        (("value",), None),
    ],
)
def test_one_changed_field_is_found(recorded: list[Record], path: tuple[str | int, ...], value: Any) -> None:
    # The second event of a transaction, whose LSN another record must not share.
    assert differences(recorded, change(recorded, 2, *path, value=value))


def test_missing_surplus_and_swapped_records_are_found(recorded: list[Record]) -> None:
    assert differences(recorded, recorded[:-1])
    assert differences(recorded[:-1], recorded)
    assert differences(recorded, [recorded[1], recorded[0], *recorded[2:]])


def test_only_the_first_heartbeat_counts() -> None:
    beating = read_recording(RECORDED / "stream_heartbeat.jsonl.gz")
    beats = [record for record in beating if "heartbeat" in record["topic"]]
    rest = [record for record in beating if "heartbeat" not in record["topic"]]
    assert len(beats) > 1
    assert differences(beating, [*rest, beats[0]]) == []
    assert differences(beating, rest)
