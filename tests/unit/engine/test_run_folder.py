"""A run's temporary files: in a folder of its own, locked while its process exists, and with their owner inside."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core import private_files
from cdc_core.engine import run_folder
from cdc_core.engine.run_folder import RunFolder
from cdc_core.errors import LakeError, StorageError, TransientError
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.spool import ReadSpoolFiles, Spool
from tests.support.waits import patient, wait_until
from tests.unit.engine.streaming import ORDERS, plan, table_of
from tests.unit.engine.test_spool_writer import raw

HOLD = """
import sys, time
from pathlib import Path
from cdc_core.engine.run_folder import RunFolder
from cdc_core.lake.rows.run_files import Owner
folder = RunFolder(Path(sys.argv[1]), "other/shop", Owner(sys.argv[2], "slot", "host/db", "lake/shop"))
(folder.path / "rows.arrow").write_text("rows")
print("ready", flush=True)
time.sleep(60)
"""


def owner(run: str) -> Owner:
    return Owner(run, "slot", "host/db", "lake/shop")


@pytest.fixture
def other(tmp_path: Path):
    """Another process with a folder in the same place."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), "other"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait(patient(20))
    process.stdout.close()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_folder_exists_as_long_as_its_run(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "spool", "shop", owner("1")) as folder:
        assert folder.path.is_dir() and folder.path.name == "shop-1"
        with RunFolder(tmp_path / "spool", "shop", owner("2")) as second:
            assert folder.path.is_dir() and second.path.is_dir()
        assert names(tmp_path / "spool") == {"shop-1", "shop-1.lock"}
    assert names(tmp_path / "spool") == set()


def test_a_living_or_stopped_run_keeps_its_folder_and_a_killed_one_loses_it(tmp_path: Path, other) -> None:
    theirs = {"other_shop-other", "other_shop-other.lock"}
    with RunFolder(tmp_path, "shop", owner("1")):
        assert names(tmp_path) >= theirs
    other.send_signal(signal.SIGSTOP)
    with RunFolder(tmp_path, "shop", owner("2")):
        assert names(tmp_path) >= theirs
    other.kill()
    other.wait(patient(20))
    with RunFolder(tmp_path, "shop", owner("3")):
        assert names(tmp_path) == {"shop-3", "shop-3.lock"}


def test_a_folder_of_another_host_is_removed_only_after_a_long_silence(tmp_path: Path) -> None:
    (tmp_path / "far-1").mkdir()
    lock = tmp_path / "far-1.lock"
    lock.write_text(json.dumps({"host": "another", "pid": 1}))
    with RunFolder(tmp_path, "shop", owner("1")):
        assert (tmp_path / "far-1").is_dir()
    past = time.time() - 2 * run_folder._SILENT_SECONDS
    os.utime(lock, (past, past))
    with RunFolder(tmp_path, "shop", owner("2")):
        assert names(tmp_path) == {"shop-2", "shop-2.lock"}


def test_a_living_run_touches_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folder, "_TOUCH_SECONDS", 0.02)
    with RunFolder(tmp_path, "shop", owner("1")):
        lock = tmp_path / "shop-1.lock"
        os.utime(lock, (1, 1))
        wait_until(lambda: lock.stat().st_mtime > 1, 10, "a touch")


def test_storage_without_locks_is_used_without_removing_anything(tmp_path: Path, monkeypatch, caplog) -> None:
    (tmp_path / "old-1").mkdir()
    (tmp_path / "old-1.lock").write_text("")

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(private_files.fcntl, "flock", refuse)
    with RunFolder(tmp_path, "shop", owner("1")) as folder:
        assert folder.path.is_dir() and (tmp_path / "old-1").is_dir()
    assert "without file locks" in caplog.text


def test_a_state_path_that_is_a_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(LakeError, match=r"cannot be created .* Make wal2lake.state.path a folder"):
        RunFolder(tmp_path / "state" / "spool", "shop", owner("1"))


def test_without_room_for_it_the_run_may_try_again_and_nothing_is_left(tmp_path: Path, monkeypatch) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for module, call in ((os, "write"), (Path, "mkdir")):
        with monkeypatch.context() as full:
            (tmp_path / "spool").mkdir(exist_ok=True)
            full.setattr(module, call, no_room)
            with pytest.raises(StorageError, match="is full"):
                RunFolder(tmp_path / "spool", "shop", owner("1"))
        assert list((tmp_path / "spool").iterdir()) == []


def test_a_spool_file_is_read_only_by_its_run_and_for_its_table(tmp_path: Path) -> None:
    spool = Spool(tmp_path, owner("1"))
    path = str(spool.write_raw(ORDERS, table_of(ORDERS), raw(ORDERS, 1, 2)))
    (rows,) = ReadSpoolFiles(plan(), owner("1"), "shop.orders")((path,))
    assert rows.num_rows == 2 and rows.schema.metadata is None
    with pytest.raises(
        TransientError, match=r"belongs to another run .run 1, slot slot, server host/db, lake lake/shop"
    ):
        list(ReadSpoolFiles(plan(), owner("2"))((path,)))
    with pytest.raises(TransientError, match=r"rows of another table than shop.clients"):
        list(ReadSpoolFiles(plan(), owner("1"), "shop.clients")((path,)))


def test_a_file_without_owner_is_never_data(tmp_path: Path) -> None:
    bare = str(tmp_path / "bare.arrow")
    with pa.OSFile(bare, "wb") as sink, pa.ipc.new_stream(sink, pa.schema([("a", pa.int64())])):
        pass
    for path, said in ((bare, "belongs to no run"), (f"{bare}.gone", "removed or is not accessible")):
        with pytest.raises(TransientError, match=said):
            list(ReadSpoolFiles(plan(), owner("1"), "shop.orders")((path,)))


def test_a_run_whose_folder_was_removed_fails_and_makes_no_new_one(tmp_path: Path) -> None:
    with RunFolder(tmp_path, "shop", owner("1")) as folder:
        spool = Spool(folder.path, folder.owner)
        path = str(spool.write_raw(ORDERS, table_of(ORDERS), raw(ORDERS, 1)))
        (folder.path / "00000001.arrow").unlink()
        folder.path.rmdir()
        with pytest.raises(TransientError, match="removed or is not accessible"):
            spool.write_raw(ORDERS, table_of(ORDERS), raw(ORDERS, 2))
        with pytest.raises(TransientError, match="removed or is not accessible"):
            list(ReadSpoolFiles(plan(), folder.owner)((path,)))
        assert not folder.path.exists()
