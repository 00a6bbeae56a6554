"""What a run waits for is told by its file, only while the run exists."""

import json
import os
import stat
from datetime import UTC, datetime

from cdc_core.cli.status import progress_line
from cdc_core.engine import run_state
from cdc_core.engine.run_state import ReachedFile, RereadsFile, WaitingFile, WaitingRun, process_start
from cdc_core.schema.table import TableId
from cdc_core.snapshot.reports import SnapshotProgress

ORDERS, PEOPLE = TableId("public", "orders"), TableId("public", "people")

WAITING = WaitingRun("No server is listening at h:1.", "Start it.", datetime(2026, 1, 2, tzinfo=UTC), 3)


def test_what_is_written_is_read_until_it_is_cleared(tmp_path):
    file = WaitingFile(tmp_path / "state", "shop", "debezium")
    assert file.read() is None
    file.write(WAITING)
    assert file.read() == WAITING
    (found,) = (tmp_path / "state").iterdir()
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    file.clear()
    assert file.read() is None
    file.clear()


def test_a_dead_run_waits_for_nothing(tmp_path):
    file = WaitingFile(tmp_path, "shop", "debezium")
    file.write(WAITING)
    (path,) = tmp_path.iterdir()
    told = json.loads(path.read_text())
    # The same id, of a process that started later.
    path.write_text(json.dumps({**told, "started": "1"}))
    assert file.read() is None
    path.write_text(json.dumps({**told, "host": "elsewhere", "started": "1"}))
    assert file.read() == WAITING
    path.write_text("{")
    assert file.read() is None


def test_a_server_is_known_by_its_address(tmp_path):
    def file(server):
        return ReachedFile(tmp_path / "state", "shop", "debezium", server)

    assert not file("h:1/d").is_reached()
    file("h:1/d").note()
    assert file("h:1/d").is_reached() and not file("h:2/d").is_reached()
    (found,) = (tmp_path / "state").iterdir()
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    file("h:2/d").note()
    assert file("h:2/d").is_reached() and not file("h:1/d").is_reached()
    found.write_text("[")
    assert not file("h:2/d").is_reached()


def test_a_process_is_known_by_its_start():
    assert process_start(os.getpid()).isdecimal()
    assert process_start(2**22 + 1) == ""


def test_the_progress_of_rereads_is_shown_while_the_run_that_reads_exists(tmp_path, monkeypatch):
    file, shown = (RereadsFile(tmp_path, "shop", "debezium") for _ in "12")
    assert shown.read() == ()
    file.note(SnapshotProgress(ORDERS, 0, None, False, 0, 8))
    file.note(SnapshotProgress(PEOPLE, 0, 20, False, 0, 2))
    assert [(one.table, one.ranges, one.rows_expected) for one in shown.read()] == [(ORDERS, 8, None), (PEOPLE, 2, 20)]
    file.note(SnapshotProgress(PEOPLE, 10, 20, False, 1, 2))
    assert shown.read()[1].rows == 0, "it is written once a second"
    monkeypatch.setattr(run_state, "_NOTE_SECONDS", 0.0)
    file.note(SnapshotProgress(PEOPLE, 15, 20, False, 1, 2))
    assert (shown.read()[1].rows, shown.read()[1].ranges_read, shown.read()[1].rows_left) == (15, 1, 5)
    assert progress_line("re-read", shown.read()[1]).startswith("re-read of public.people: 15 rows of about 20, 1 of 2")
    file.note(SnapshotProgress(PEOPLE, 20, 20, True, 2, 2))
    assert [one.table for one in shown.read()] == [ORDERS]
    with monkeypatch.context() as patch:
        patch.setattr(run_state, "process_start", lambda pid: "another")
        assert shown.read() == (), "the run was killed, and its number is another process's"
    file.clear()
    assert shown.read() == ()
    file.path.write_text('{"tables": 1}')
    assert shown.read() == ()
