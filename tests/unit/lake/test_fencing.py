"""A writer that outlives its run: what it commits late can neither double nor lose a row, whichever commit is first.

Each writer is an object of its own over the same folder that has loaded the same version, as a worker process has.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError, InvariantError, TransientError
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.positions import COMPLETE, LakePosition
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.slice.order import WrittenFiles
from cdc_core.lake.slice.outcome import Applied
from cdc_core.lake.stores.changelog import append_changes, commit_append
from cdc_core.lake.stores.quarantine import write_quarantine
from cdc_core.lake.stores.snapshot_events import complete_snapshot_events
from cdc_core.lake.write.replace import commit_snapshot, prepare, write_rows
from tests.delta.source_model import KEYLESS, ROW, TABLE
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import AT, change, lake_rows, lake_schema

T = TABLE.id


def put(lsn: int, index: int, key: str, op: str = "c", **values: Any) -> dict[str, Any]:
    return change(op, lsn, index, None, image(key, **values))


def image(key: str, **values: Any) -> dict[str, Any]:
    return {"h": 0, "k": key, "v": 1, "big": "b", "num": None, "__rescued": None, **values}


def drop(lsn: int, index: int, key: str) -> dict[str, Any]:
    return change("d", lsn, index, {"h": 0, "k": key})


@pytest.fixture
def one(tmp_path: Path) -> OneTable:
    return OneTable(tmp_path, TABLE, ROW)


STREAM = [put(10, 0, "a"), put(12, 0, "b"), put(12, 1, "c"), put(12, 2, "d"), put(14, 0, "e")]
PLACES = [(row["__commit_lsn"], row["__tx_index"]) for row in STREAM]


def reached(rows: list[dict[str, Any]]) -> Reached:
    """Where an append of the stream's first rows ends. Transactions end with the rows 0, 3 and 4."""
    at = PLACES[len(rows) - 1]
    whole = {0: 10, 3: 12, 4: 14}
    ends = [number for number in whole if number < len(rows)]
    cut = None if len(rows) - 1 in whole else at
    return Reached(whole[ends[-1]] if ends else None, cut)


@pytest.mark.parametrize(
    ("held", "mine", "late"),
    [(held, mine, late) for held in range(4) for mine, late in itertools.product(range(held + 1, 6), repeat=2)],
)
def test_late_appends_of_whole_and_partial_transactions(one: OneTable, held: int, mine: int, late: int) -> None:
    """Both loaded a changelog with some rows of the stream; one appends up to ``mine``, the other up to ``late``."""
    made = one.open_changelog()
    if held:
        append_changes(made, one.changes(STREAM[:held]), SLOT, T, reached(STREAM[:held]))
    writers = [one.open_changelog(), one.open_changelog()]
    for writer, count in zip(writers, (mine, late), strict=True):
        append_changes(writer, one.changes(STREAM[:count]), SLOT, T, reached(STREAM[:count]))
    furthest = max(mine, late)
    assert one.events == PLACES[:furthest]
    ends = reached(STREAM[:furthest])
    assert one.changelog_position == (ends.cut or (ends.whole, COMPLETE))


def test_a_late_append_of_the_rows_before_a_wider_one(one: OneTable) -> None:
    """The killed run's batch ended elsewhere than the next run's, and its worker had decided before it slept."""
    late = one.open_changelog()
    file = late.write(one.changes(STREAM[:3]))
    one.append(STREAM, 14)
    with pytest.raises(CommitConflictError):
        commit_append(late, [file], SLOT, T, reached(STREAM[:3]))
    late.refresh()
    assert append_changes(late, one.changes(STREAM[:3]), SLOT, T, reached(STREAM[:3])) == 0
    assert one.events == PLACES


def test_files_that_parts_wrote_are_committed_once(one: OneTable) -> None:
    task, changelog = one.task, one.open_changelog()
    parts = tuple(changelog.write(one.changes([row])) for row in STREAM)
    files = WrittenFiles(parts, (), Reached(14))
    order = replace(one.order(14), append=files, merge=None)
    assert task(order).appended == 5
    late = OneTable(one.folder, TABLE, ROW).task
    with pytest.raises(TransientError, match="appended to the changelog"):
        late(replace(order, append=replace(files, written=parts[:2])))
    assert one.events == PLACES


def test_two_runs_merge_one_backlog(tmp_path: Path) -> None:
    for number, (first, second) in enumerate(itertools.product([12, 14], repeat=2)):
        runs = [OneTable(tmp_path / str(number), TABLE, ROW) for _ in range(2)]
        runs[0].snapshot(1, [image("z")])
        runs[0].append([*STREAM, put(14, 1, "a", "u", v=2), drop(14, 2, "z")], 14)
        for run in runs:
            assert run.merge(5, token=1).merged == 5
        runs[0].merge(first, token=1)
        runs[1].merge(second, token=1)
        assert runs[0].lake_position == (1, max(first, second))
        keys = sorted(row["k"] for row in runs[0].rows)
        assert keys == list("abcdz" if max(first, second) == 12 else "abcde")


class Sleeper:
    """A task that stops before its commit to the lake, as a stopped worker does, and goes on when it is told."""

    def __init__(self, one: OneTable, monkeypatch: pytest.MonkeyPatch) -> None:
        self.one, self.monkeypatch = one, monkeypatch

    def merge_around(self, to: int, meanwhile: Any, token: int = 1) -> Any:
        """Merge up to ``to``; ``meanwhile()`` runs when everything is decided and written, right before the commit."""
        commit, left = DeltaTable.commit, [meanwhile]

        def late(table: DeltaTable, *arguments: Any, **more: Any) -> int:
            if left and table.path == self.one.lake:
                with self.monkeypatch.context() as awake:
                    awake.setattr(DeltaTable, "commit", commit)
                    left.pop()()
            return commit(table, *arguments, **more)

        with self.monkeypatch.context() as patched:
            patched.setattr(DeltaTable, "commit", late)
            outcome = self.one.task(self.one.order(to, token))
        assert not left, "the task came to its commit"
        return outcome


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize("further", [False, True])
@pytest.mark.parametrize("op", ["c", "u"])
def test_a_task_that_sleeps_over_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyless: bool, further: bool, op: str
) -> None:
    """Appends (op c), rewrites of files (op u), rows without a key: each event counts once."""
    table = KEYLESS if keyless else TABLE
    late, now = OneTable(tmp_path, table, ROW), OneTable(tmp_path, table, ROW)
    old = image("a", v=0)
    now.snapshot(1, [old])
    rows = [put(10, 0, "b"), put(12, 0, "b" if keyless else "c")]
    rows += [change("u", 12, 1, old, image("a", v=5))] if op == "u" else []
    now.append(rows, 12)
    now.append([put(14, 0, "d")], 14)

    def next_run() -> None:
        assert now.merge(14 if further else 12, token=1).applied is not None

    outcome = Sleeper(late, monkeypatch).merge_around(12, next_run)
    assert outcome.error is None and outcome.applied is None
    keys = sorted((row["k"], row["v"]) for row in now.rows)
    assert keys == sorted(
        [("a", 5 if op == "u" else 0), ("b", 1), ("b" if keyless else "c", 1), *([("d", 1)] if further else [])]
    )
    assert now.lake_position == (1, 14 if further else 12)
    assert now.merge(14, token=1).merged == 14
    assert len(now.rows) == 4


def test_a_delayed_task_merges_only_changes_that_the_next_run_did_not(
    one: OneTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = OneTable(one.folder, TABLE, ROW)
    one.snapshot(1, [image("z")])
    one.append(STREAM, 14)
    outcome = Sleeper(late, monkeypatch).merge_around(14, lambda: one.merge(12, token=1))
    assert isinstance(outcome.applied, Applied) and outcome.applied.inserted == 1
    assert sorted(row["k"] for row in one.rows) == list("abcdez")
    assert one.lake_position == (1, 14)


@pytest.mark.parametrize("inserts", [True, False])
def test_a_task_that_sleeps_over_a_snapshot_leaves_it_as_it_is(
    one: OneTable, monkeypatch: pytest.MonkeyPatch, inserts: bool
) -> None:
    late = OneTable(one.folder, TABLE, ROW)
    one.snapshot(1, [image("z")])
    one.append([put(10, 0, "a"), *([] if inserts else [drop(10, 1, "z")])], 10)
    outcome = Sleeper(late, monkeypatch).merge_around(10, lambda: one.snapshot(2, [image("new")], lsn=20))
    assert isinstance(outcome.error, TransientError) and outcome.applied is None
    assert [row["k"] for row in one.rows] == ["new"]
    assert one.lake_position == (2, None)


def test_a_snapshot_replaces_what_is_merged_while_it_is_taken(one: OneTable) -> None:
    schema = lake_schema(ROW)
    one.append([put(10, 0, "a")], 10)
    opened = prepare(one.lake, schema, T, 1)
    at = {"__commit_lsn": 20, "__tx_index": -1, "__commit_ts": AT}
    taken = pa.Table.from_pylist([{**image("a"), **at}], schema=schema)
    files = write_rows(opened, taken.to_batches(), schema)
    one.merge(10)
    assert [row["k"] for row in one.rows] == ["a"]
    commit_snapshot(opened, files, schema, SLOT, T, token=3)
    assert [row["k"] for row in one.rows] == ["a"], "the merged row went with the content that it belonged to"
    assert one.lake_position == (3, None)


def test_the_older_of_two_snapshots_never_replaces_the_newer(one: OneTable) -> None:
    schema = lake_schema(ROW)
    late = prepare(one.lake, schema, T, 1)
    one.snapshot(5, [image("new")])
    with pytest.raises(InvariantError, match="not newer"):
        commit_snapshot(late, [], schema, SLOT, T, token=4)
    assert [row["k"] for row in one.rows] == ["new"]


def test_reads_of_a_snapshot_are_written_once_by_two_writers(one: OneTable, monkeypatch: pytest.MonkeyPatch) -> None:
    one.snapshot(5, [image("a"), image("b")])
    one.open_changelog()
    commit, left = DeltaTable.commit, [1]

    def late(table: DeltaTable, *arguments: Any, **more: Any) -> int:
        if left and table.path == one.changelog:
            left.clear()
            assert complete_snapshot_events(one.lake, one.changelog, SLOT, T, 1) is not None
        return commit(table, *arguments, **more)

    monkeypatch.setattr(DeltaTable, "commit", late)
    assert complete_snapshot_events(one.lake, one.changelog, SLOT, T, 1) is None
    assert len(one.events) == 2


def test_refused_rows_are_written_once_by_two_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "quarantine")
    schema = pa.schema(
        [
            ("__commit_lsn", pa.int64()),
            ("__tx_index", pa.int64()),
            ("reasons", pa.list_(pa.string())),
            ("row", pa.string()),
        ]
    )

    def written(*lsns: int) -> int:
        made = [{"__commit_lsn": lsn, "__tx_index": 0, "reasons": ["r"], "row": "{}"} for lsn in lsns]
        return write_quarantine(pa.Table.from_pylist(made, schema=schema), path, LakePosition(0, 0), 10, follows=True)

    assert written(1) == 1
    commit, left = DeltaTable.commit, [1]

    def late(table: DeltaTable, *arguments: Any, **more: Any) -> int:
        if left:
            left.clear()
            assert written(1, 2, 3) == 2
        return commit(table, *arguments, **more)

    monkeypatch.setattr(DeltaTable, "commit", late)
    assert written(2, 3, 4) == 1
    assert sorted(row["__commit_lsn"] for row in lake_rows(path)) == [1, 2, 3, 4]


def test_a_merge_over_files_that_were_put_together_meanwhile(one: OneTable, monkeypatch: pytest.MonkeyPatch) -> None:
    one.snapshot(1, [])
    for number in range(16):
        one.append([put(10 + number, 0, f"k{number:02}")], 10 + number)
        lake = DeltaTable.open(one.lake)
        assert lake is not None
        row = {**image(f"k{number:02}"), "__commit_lsn": 10 + number, "__tx_index": 0, "__commit_ts": AT}
        lake.commit([lake.write(pa.Table.from_pylist([row], schema=lake.schema))], txns={"test": number})
    one.append([put(40, 0, "k03", "u", v=9), drop(40, 1, "k05")], 40)
    late = OneTable(one.folder, TABLE, ROW)

    def compaction() -> None:
        table = DeltaTable.open(one.lake)
        assert table is not None and compact(table) == 16

    outcome = Sleeper(late, monkeypatch).merge_around(40, compaction)
    assert outcome.error is None and outcome.applied is not None
    found = {row["k"]: row["v"] for row in one.rows}
    assert len(found) == 15 == len(one.rows) and found["k03"] == 9 and "k05" not in found
