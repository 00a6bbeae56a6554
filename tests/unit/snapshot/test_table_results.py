"""Several tables read together: an error of one, before, during or after reading, and what the others become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core.errors import LakeError, SourceError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy import run as module
from cdc_core.snapshot.copy.run import SnapshotRun
from cdc_core.snapshot.copy.table_results import TableResults
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport

GOOD, BAD, LAST = (TableSchema(TableId("public", name), number, ()) for number, name in enumerate(("a", "b", "c")))
REFUSED = SourceError("Not allowed.", "Allow it.")


def report(table: TableSchema) -> SnapshotReport:
    return SnapshotReport(table.id, 5, Lsn(30), 0.1, 1)


@pytest.fixture
def taken(monkeypatch):
    """A function: takes the three tables together, with an error where it is wanted."""

    def take(preparing: Any = None, reading: Any = None, committing: Any = None, ending: Any = None) -> Any:
        run: Any = SnapshotRun.__new__(SnapshotRun)
        facts = SimpleNamespace(name="s", timestamp_us=0)
        holder = SimpleNamespace(facts=facts, check=lambda: None)
        closed: list[bool] = []
        opened = SimpleNamespace(lsn=Lsn(30), holder=holder, close=lambda: closed.append(True))
        run._source = SimpleNamespace(
            await_older_transactions=lambda: True, open_concurrent_snapshot=lambda: opened, options=None
        )
        locking = SimpleNamespace(snapshot_locking_mode=None, snapshot_lock_timeout_ms=0)
        run._settings = SimpleNamespace(options=locking, reads=False, has_features=False, scope="slot")
        run._paths, run._plan, run._spark = SimpleNamespace(snapshots=""), None, None
        discarded: list[TableId] = []

        def prepared(table: TableSchema, *_: Any) -> Any:
            if preparing is not None and table is BAD:
                raise preparing
            lake = SimpleNamespace(discard=lambda files: discarded.append(table.id))
            made = SimpleNamespace(table=table, taken=None, results={}, files=[], lake=lake, shape=0)
            made.is_whole = True
            return made

        def commit(reading: Any, opened: Any, on_progress: Any, *_: Any, **__: Any) -> SnapshotReport:
            if committing is not None and reading.table is BAD:
                raise committing
            on_progress(SnapshotProgress(reading.table.id, 5, None, True, 1, 1, report(reading.table)))
            return report(reading.table)

        def ranges(spark: Any, readings: Any, *_: Any) -> Any:
            for each in readings:
                if ending is not None and each.table is LAST:
                    raise ending
                error = reading if each.table is BAD else None
                yield [SimpleNamespace(table=each.table.id, number=0, error=error)]

        run._prepared, run._commit, run._as_described = prepared, commit, list
        run._measure = run._plan_ranges = lambda *_: None
        run._parallel_jobs = lambda **_: 1
        run._new_shapes = lambda tables, *_: {table.id: 1 for table in tables}
        run._report_progress = lambda *_: None
        for name in ("record_snapshots", "epoch_of", "connection_string"):
            monkeypatch.setattr(module, name, lambda *_: "")
        monkeypatch.setattr(module, "CopyRanges", lambda *_: None)

        def closing(readings: Any) -> Any:
            yield from ranges(None, readings)

        monkeypatch.setattr(module, "read_ranges", lambda spark, readings, *_: closing(readings))
        found = run.take_together([GOOD, BAD, LAST], {}, {})
        assert closed == [True]
        return found, discarded

    return take


@pytest.mark.parametrize("moment", ["preparing", "reading", "committing"])
def test_the_tables_beside_one_with_an_error_are_read(taken, moment):
    found, discarded = taken(**{moment: REFUSED})
    assert found == {GOOD.id: report(GOOD), BAD.id: REFUSED, LAST.id: report(LAST)}
    assert discarded == ([BAD.id] if moment == "reading" else [])


def test_a_temporary_error_of_a_table_leaves_it_to_the_next_attempt(taken):
    found, _ = taken(committing=TransientError("Another run.", "Wait."))
    assert found == {GOOD.id: report(GOOD), LAST.id: report(LAST)}


def test_an_error_of_all_tables_leaves_the_reports_of_those_committed(taken):
    error = LakeError("The folder is gone.")
    found, _ = taken(ending=error)
    assert found == {GOOD.id: report(GOOD), BAD.id: report(BAD), LAST.id: error}
    with pytest.raises(TransientError):
        taken(ending=TransientError("The server restarts."))


def test_an_error_is_raised_where_no_table_is_to_be_left_out():
    with pytest.raises(SourceError):
        TableResults(raises=True).note(BAD.id, REFUSED)
