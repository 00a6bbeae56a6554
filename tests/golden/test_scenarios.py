"""Scenarios that Debezium 3.6.3 was recorded on: names, keys, filters, mappers, types, DDL, partitions, snapshots.

A file holds the connector's properties, the SQL before it starts, the SQL while it runs (a list for each stretch after
which the stream comes to rest), and the events; the database's name reads DBNAME in them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.event_compare import differences
from tests.support.events import capture

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.json.gz"))

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_the_events_are_debeziums(debian15: Cluster, path: Path) -> None:
    scenario = json.loads(gzip.decompress(path.read_bytes()))
    with capture(debian15, scenario["properties"], *scenario["before"]) as one:
        parts = [[text.replace("@DB@", one.database) for text in part] for part in scenario["while"]]
        found = differences(scenario["events"], one.run(*parts))
    assert not found, f"{len(found)} records differ\n" + "\n".join(found[:20])
