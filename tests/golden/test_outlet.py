"""Recorded runs of Debezium 3.6.3 with transforms and converters, made again: the same files give the same lines."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest

from tests.golden.test_replay import RECORDED, driver, run_resting, run_script_resting
from tests.support.cluster import Cluster
from tests.support.line_compare import unlike

pytestmark = pytest.mark.postgres

KINDS = ("unwrap", "unwrap_rewrite", "schemaless", "reroute", "outbox")


@pytest.mark.parametrize("kind", KINDS)
def test_the_lines_are_debeziums(debian15: Cluster, kind: str) -> None:
    database = f"golden_{kind}"
    run = driver(debian15, kind)

    def changes(settle: Callable[[], None]) -> None:
        if kind == "outbox":
            run_script_resting(debian15, database, RECORDED / "outbox.sql", settle)
        else:
            run_resting(debian15, database, settle)

    try:
        run.prepare()
        run.stream(changes)
    finally:
        debian15.drop_database(database)
    assert run.context.outlet is not None
    lines = [*run.lines, *run.context.outlet.last_lines()]
    recorded = gzip.decompress((RECORDED / f"{kind}.jsonl.gz").read_bytes()).decode().split("\n")
    found = unlike(recorded, lines)
    assert not found, f"{len(found)} lines differ\n" + "\n".join(found[:5])
