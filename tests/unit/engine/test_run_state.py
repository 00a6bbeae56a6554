"""What a run waits for is told by its file, only while the run exists."""

import json
import os
import stat
from datetime import UTC, datetime

from cdc_core.engine.run_state import ReachedFile, WaitingFile, WaitingRun, process_start

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
