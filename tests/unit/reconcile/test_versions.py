"""Which keys have wrong versions, over any history of a table: those that were damaged and no other."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.lake.compare.rows import Compared
from cdc_core.lake.compare.versions import WrongVersions, wrong_versions
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.rows.survey import in_order
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.delta.kept_model import KeptModel, Version
from tests.delta.source_model import ROW, SourceTable
from tests.support.content import MemoryContent
from tests.support.spark import change_schema

KEY = ("h", "k")
SCHEMA = lake_schema(ROW, DeleteMode.HISTORY)
CAPTURED = pa.schema([*ROW, ("__commit_lsn", pa.int64()), ("__tx_index", pa.int64())])
COMPARED = Compared.of(CAPTURED, SCHEMA, KEY)
NONE = np.zeros((0, 2), dtype=np.int64)


class History:
    """A source's changes since a snapshot, and the versions that they lead to."""

    def __init__(self, seed: int, truncates: bool) -> None:
        source = SourceTable(seed, histories=6, truncates=truncates, truncate_chance=0.03)
        source.next_transaction(25)
        self.read_at, self.model = source.lsn, KeptModel(KEY)
        self.model.take(source.snapshot(), (source.lsn, -1, None))
        self.changes = [row for _ in range(8) for row in source.next_transaction(9)]
        for row in self.changes:
            self.model.apply(row)

    def rows(self) -> list[dict[str, Any]]:
        """The versions as rows of the lake."""
        return [lake_row(each) for each in self.model.versions]

    def wrong(self, rows: list[dict[str, Any]], unsure: np.ndarray = NONE) -> WrongVersions:
        """What is found in a lake table with these rows."""
        content = MemoryContent(SCHEMA)
        content.add(pa.Table.from_pylist(rows, schema=SCHEMA))
        changes = in_order(pa.Table.from_pylist(self.changes, schema=change_schema(ROW)))
        known = np.array([[row["__commit_lsn"], row["__tx_index"]] for row in self.changes]).reshape(-1, 2)
        lake: Any = content
        return wrong_versions(lake, COMPARED, changes, known, self.read_at, unsure)


def lake_row(version: Version) -> dict[str, Any]:
    began, ended = version.began, version.ended or (None, None, None)
    own = {"__valid_from_lsn": began[0], "__valid_from": began[2], "__current": version.ended is None}
    own |= dict(zip(("__commit_lsn", "__tx_index", "__commit_ts"), began, strict=True))
    return version.values | own | dict(zip(("__valid_to_lsn", "__valid_to_index", "__valid_to"), ended, strict=True))


def keys(found: WrongVersions) -> set[tuple[Any, ...]]:
    return {(row["h"], row["k"]) for row in found.keys.to_pylist()}


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["h"], row["k"]


@pytest.mark.parametrize("truncates", [False, True])
def test_versions_that_a_changelog_leads_to_are_right(truncates: bool) -> None:
    for seed in range(40):
        found = History(seed, truncates).wrong(History(seed, truncates).rows())
        assert (keys(found), found.removed) == (set(), 0), seed


def damaged(rows: list[dict[str, Any]], whole: set[tuple[int, int]], chance: random.Random) -> set[tuple[Any, ...]]:
    """Damage a version; returns whose, nothing if there is none. ``whole``: the positions of complete images."""
    events = [at for at, row in enumerate(rows) if (row["__commit_lsn"], row["__tx_index"]) in whole]
    ended = sorted(at for at, row in enumerate(rows) if row["__valid_to_index"] is not None)
    what = chance.choice(["values", "end", "open", "late", "moved", "doubled", "current"])
    at = chance.choice(events if what in ("values", "moved", "doubled") else ended)
    row = rows[at]
    if what == "values":
        rows[at] = row | {"v": (row["v"] or 0) + 1}
    elif what == "end":
        rows[at] = row | {"__valid_to_lsn": row["__valid_from_lsn"] + 1, "__valid_to_index": 77}
    elif what == "open":
        rows[at] = row | {"__valid_to_lsn": None, "__valid_to_index": None, "__current": True}
    elif what == "late":
        rows[at] = row | {"__valid_to_lsn": row["__valid_to_lsn"] + 1, "__valid_to_index": 78}
    elif what == "moved":
        rows[at] = row | {"__valid_from_lsn": row["__valid_from_lsn"] + 1, "__tx_index": 79}
    elif what == "doubled" and row["__valid_to_lsn"] != row["__valid_from_lsn"]:
        rows.append(dict(row))
    elif what == "current":
        rows[at] = row | {"__current": True}
    else:
        return set()
    return {key_of(row)}


def test_what_was_damaged_is_named() -> None:
    hits = 0
    for seed in range(60):
        history, chance = History(seed, truncates=seed % 3 == 0), random.Random(seed)
        rows = history.rows()
        whole = {(row["__commit_lsn"], row["__tx_index"]) for row in history.changes if not row["__unchanged"]}
        wrong = damaged(rows, whole, chance)
        assert keys(history.wrong(rows)) == wrong, seed
        hits += len(wrong)
    assert hits > 30


def test_a_version_that_is_missing_is_named_or_was_removed() -> None:
    history = History(3, truncates=False)
    rows = sorted(history.rows(), key=lambda row: (row["__valid_to_lsn"] or 2**62, row["__valid_to_index"] or 0))
    ended = [row for row in rows if row["__valid_to_lsn"] is not None and row["__tx_index"] >= 0]
    lasting = [row for row in ended if row["__valid_to_lsn"] > row["__valid_from_lsn"]]
    gone = lasting[-1]
    assert keys(history.wrong([row for row in rows if row is not gone])) == {key_of(gone)}
    limit = lasting[len(lasting) // 2]["__valid_to_lsn"]
    kept = [row for row in rows if row["__valid_to_lsn"] is None or row["__valid_to_lsn"] >= limit]
    found = history.wrong(kept)
    assert keys(found) == set()
    assert found.removed >= sum(row["__valid_to_lsn"] < limit for row in lasting) > 0
    gone = next(row for row in rows if row["__current"] and row["__tx_index"] >= 0)
    assert keys(history.wrong([row for row in rows if row is not gone])) == {key_of(gone)}


def test_keys_whose_change_was_refused_are_not_judged() -> None:
    history = History(5, truncates=False)
    rows = history.rows()
    at = next(at for at, row in enumerate(rows) if row["__tx_index"] >= 0)
    gone = rows.pop(at)
    refused = np.array([[gone["__commit_lsn"], gone["__tx_index"]]])
    assert keys(history.wrong(rows, refused)) == set()


def test_what_a_repair_ended_stays_as_it_is() -> None:
    history = History(7, truncates=False)
    rows = history.rows()
    chosen = [row for row in rows if row["__current"] and row["__tx_index"] >= 0]
    wrong, gone, twice = chosen[:3]
    last = max(row["__commit_lsn"] for row in history.changes)
    end = {"__valid_to_lsn": last, "__valid_to_index": -1, "__current": False}
    begin = {"__commit_lsn": last, "__valid_from_lsn": last, "__tx_index": -1}
    kept = [row for row in rows if row not in (wrong, gone, twice)]
    damaged_rows = [wrong | {"v": -1}, twice, dict(twice)]
    assert keys(history.wrong(kept + damaged_rows)) == {key_of(row) for row in (wrong, gone, twice)}
    repaired = [row | end for row in damaged_rows] + [row | begin for row in (wrong, gone, twice)]
    found = history.wrong(kept + repaired)
    assert (keys(found), found.removed) == (set(), 0)
