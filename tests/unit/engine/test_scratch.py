"""Temporary files of a command: in its own folder, removed at its end, and after a kill by the next command."""

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

from cdc_core.engine import scratch
from cdc_core.engine.run_state import process_start
from cdc_core.engine.scratch import remove_ended, scratch_of_command, spark_scratch
from tests.support.waits import patient


def test_a_command_has_a_folder_of_its_own_until_it_ends(tmp_path, monkeypatch):
    monkeypatch.delenv("TMPDIR", raising=False)
    before = tempfile.gettempdir()
    assert spark_scratch(tmp_path) == {}
    with scratch_of_command():
        found = spark_scratch(tmp_path / "state")
        own = Path(found["spark.local.dir"])
        assert own.parent == tmp_path / "state" / "tmp"
        assert [stat.S_IMODE(each.stat().st_mode) for each in (own, own.parent, own.parent.parent)] == [0o700] * 3
        assert Path(tempfile.mkdtemp()).parent == own
        # Another connector of the process uses it, too.
        assert spark_scratch(tmp_path / "state") == spark_scratch(tmp_path / "other") == found
        assert not (tmp_path / "other").exists()
        java = Path(found["spark.driver.extraJavaOptions"].partition("=")[2])
        assert java.is_dir() and len(str(java)) <= 60
    assert not own.exists() and not java.exists()
    assert tempfile.gettempdir() == before and "TMPDIR" not in os.environ


def test_only_folders_of_dead_processes_of_this_host_are_removed(tmp_path):
    host = scratch._host()
    pid, start = os.getpid(), process_start(os.getpid())
    alive, elsewhere, other = f"{host}-{pid}-{start}", f"elsewhere-{pid}-1", "something"
    for name in (alive, elsewhere, other, f"{host}-{pid}-1", f"{host}-{2**22 + 1}-5"):
        (tmp_path / name / "blockmgr-1").mkdir(parents=True)
    remove_ended(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {alive, elsewhere, other}
    remove_ended(tmp_path / "nothing")


def test_a_java_process_that_outlived_its_killed_command_ends_with_its_folder(tmp_path):
    java = tmp_path / "java"
    shutil.copy("/bin/sleep", java)
    host, pid, start = scratch._host(), os.getpid(), process_start(os.getpid())
    killed, running = tmp_path / "tmp" / f"{host}-{2**22 + 1}-5", tmp_path / "tmp" / f"{host}-{pid}-{start}"
    started = []
    for folder, program in ((killed, java), (running, java), (killed, "sleep")):
        folder.mkdir(parents=True, exist_ok=True)
        started.append(subprocess.Popen([program, "60"], env={**os.environ, "TMPDIR": str(folder)}))
    try:
        remove_ended(tmp_path / "tmp")
        assert started[0].wait(patient(20)) == -signal.SIGKILL
        assert [each.poll() for each in started[1:]] == [None, None]
        assert running.exists() and not killed.exists()
    finally:
        for each in started:
            each.kill()
            each.wait(patient(20))
