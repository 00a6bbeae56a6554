"""What a comparison leaves behind when it is killed, and what one that continues it makes of it."""

from __future__ import annotations

from pathlib import Path

from cdc_core.lake.compare.differences import ChangelogFound, Differences, KeyList, State
from cdc_core.lake.stores.reconciliations import ReconciliationLog, read_reconciliations
from cdc_core.lsn import Lsn
from cdc_core.reconcile.journal import Journal
from cdc_core.reconcile.reports import TableResult
from cdc_core.schema.table import TableId

FOUND = Differences(missing=KeyList(2, (("1",), ("2",))))


def result(number: int) -> TableResult:
    table = TableId("public", f"t{number}")
    changelog = ChangelogFound(7, 0, KeyList(), "", KeyList(1, (("3",),)), 4)
    return TableResult(table, State.DIFFERENT, 10, found=FOUND, changelog=changelog)


def opened(folder: Path, *, resume: bool, kind: str = "all") -> Journal:
    log = ReconciliationLog(str(folder / "log"), 1, 90)
    return Journal.open(folder / "journal.json", log, kind, "slot", resume=resume)


def stored(folder: Path) -> list[tuple[str, str, int]]:
    return [(each.run, str(each.table), int(each.lsn)) for each in read_reconciliations(str(folder / "log"), 0)]


def test_a_comparison_that_was_killed_is_continued(tmp_path: Path) -> None:
    killed = opened(tmp_path, resume=False)
    for number in range(30):
        killed.note(result(number), Lsn(100))
    assert len(stored(tmp_path)) == 25
    again = opened(tmp_path, resume=True)
    assert again.run == killed.run
    assert again.done == {each.table: each for each in map(result, range(30))}
    again.note(result(30), Lsn(200))
    again.close()
    found = stored(tmp_path)
    assert {run for run, _, _ in found} == {killed.run}
    assert sorted(found) == sorted(
        (killed.run, f"public.t{number}", 200 if number == 30 else 100) for number in range(31)
    )
    assert opened(tmp_path, resume=True).done == {}


def test_another_comparison_begins_again(tmp_path: Path) -> None:
    killed = opened(tmp_path, resume=False)
    killed.note(result(1), Lsn(100))
    assert opened(tmp_path, resume=True, kind="since").done == {}
    assert opened(tmp_path, resume=False).done == {}
    (tmp_path / "journal.json").write_text("{")
    assert opened(tmp_path, resume=True).done == {}
