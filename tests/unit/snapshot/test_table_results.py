"""Several tables read together: an error of one, before, during or after reading, and what the others become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core.errors import LakeError, SourceError, TransientError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.copy import run as module
from cdc_core.snapshot.copy.resume import EarlierAttempts
from cdc_core.snapshot.copy.run import SnapshotRun
from cdc_core.snapshot.copy.table_plan import PlannedRange, TablePlan
from cdc_core.snapshot.copy.table_results import TableResults
from cdc_core.snapshot.copy.task import RangeResult
from cdc_core.snapshot.reports import SnapshotReport

GOOD, BAD, LAST = (TableSchema(TableId("public", name), number, ()) for number, name in enumerate(("a", "b", "c")))
REFUSED = SourceError("Not allowed.", "Allow it.")


def report(table: TableSchema) -> SnapshotReport:
    return SnapshotReport(table.id, 5, Lsn(30), 0.1, 1)


@pytest.fixture
def taken(monkeypatch):
    """A function: takes the three tables together, with an error where it is wanted.

    ``changed``: a table that was altered meanwhile. ``told``: the stream goes on, and reports are appended to it.
    """

    def take(
        preparing: Any = None,
        reading: Any = None,
        committing: Any = None,
        ending: Any = None,
        changed: Any = None,
        told: Any = None,
    ) -> Any:
        run: Any = SnapshotRun.__new__(SnapshotRun)
        facts = SimpleNamespace(name="s", timestamp_us=0, visible="3:3:")
        holder = SimpleNamespace(facts=facts, check=lambda: None)
        closed: list[bool] = []
        opened = SimpleNamespace(lsn=Lsn(30), holder=holder, close=lambda: closed.append(True))
        run._source = SimpleNamespace(
            await_older_transactions=lambda *seconds: True, open_concurrent_snapshot=lambda: opened, options=None
        )
        locking = SimpleNamespace(snapshot_locking_mode=None, custom=None, snapshot_lock_timeout_ms=0)
        run._settings = SimpleNamespace(
            options=locking, may_resume=True, rows_per_range=10, history_minutes=0, scope="slot", checks=None
        )
        run._paths, run._plan, run._spark = SimpleNamespace(snapshots="", schema_versions=""), None, None
        run._source.catalog, run._tokens = SimpleNamespace(key_bounds=None), {}
        discarded: list[TableId] = []

        def described(table: TableSchema) -> Any:
            if preparing is not None and table is BAD:
                raise preparing
            target = SimpleNamespace(token=None, discard=lambda parts: discarded.append(table.id))
            return SimpleNamespace(table=table, target=target, estimate=None)

        def describe(tables: Any, results: TableResults) -> Any:
            made = [results.attempt(table.id, lambda table=table: described(table)) for table in tables]
            return [each for each in made if each is not None]

        def plans(described: Any, taken: Any, schema_versions: Any, earlier: Any, *_: Any) -> list[TablePlan]:
            attempts = EarlierAttempts()
            return [
                TablePlan(
                    each, taken[each.table.id], schema_versions[each.table.id], (PlannedRange("select"),), attempts
                )
                for each in described
            ]

        def commit(read: Any) -> SnapshotReport:
            if committing is not None and read.plan.table is BAD:
                raise committing
            return report(read.plan.table)

        def ranges(spark: Any, reads: Any, *_: Any) -> Any:
            for read in reads:
                if ending is not None and read.plan.table is LAST:
                    raise ending
                yield [RangeResult(read.table, 0, error=reading if read.plan.table is BAD else None)]

        run._describer = SimpleNamespace(describe=describe)
        run._parallel_jobs = lambda **_: 1
        for name in ("epoch_of", "connection_string", "SchemaLog", "lake_properties"):
            monkeypatch.setattr(module, name, lambda *_: "")
        monkeypatch.setattr(module, "SnapshotLog", lambda *_: SimpleNamespace(add=lambda taken: None))
        versions = {table.id: 1 for table in (GOOD, BAD, LAST)}
        monkeypatch.setattr(module, "record_schema_versions", lambda *_: (versions, frozenset()))
        monkeypatch.setattr(module, "plan_tables", plans)
        unaltered = lambda catalog, plans: [plan for plan in plans if plan.table is not changed]  # noqa: E731
        monkeypatch.setattr(module, "unaltered", unaltered)
        monkeypatch.setattr(module, "TableCommits", lambda *_: SimpleNamespace(commit=commit))
        monkeypatch.setattr(module, "CopyRanges", lambda *_: None)
        monkeypatch.setattr(module, "read_ranges", ranges)
        tables = [GOOD, BAD, LAST]
        try:
            if told is None:
                found = run.take_together(tables, {}, {})
            else:
                found = run.reread(tables, {}, {}, lambda progress: told.extend(filter(None, [progress.report])))
        finally:
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


@pytest.mark.parametrize("moment", ["preparing", "reading", "committing"])
def test_while_streaming_each_table_is_reported_when_committed_and_others_have_errors(taken, moment):
    told: list[SnapshotReport] = []
    found, _ = taken(**{moment: REFUSED}, told=told)
    assert found == {BAD.id: REFUSED} and told == [report(GOOD), report(LAST)]


def test_while_streaming_an_altered_table_has_a_temporary_error(taken):
    told: list[SnapshotReport] = []
    found, discarded = taken(changed=BAD, told=told)
    assert list(found) == [BAD.id] == discarded and told == [report(GOOD), report(LAST)]
    assert isinstance(found[BAD.id], TransientError) and str(BAD.id) in found[BAD.id].message


def test_while_streaming_an_error_of_all_tables_is_raised_after_the_reports(taken):
    told: list[SnapshotReport] = []
    with pytest.raises(LakeError):
        taken(ending=LakeError("The folder is gone."), told=told)
    assert told == [report(GOOD), report(BAD)]
