"""Where servers of tests keep their data."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.memory_folder import MEMORY, data_folder
from tests.support.waits import patient

in_memory = pytest.mark.skipif(
    not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < 1 << 20,
    reason="no /dev/shm that can be written (a container: --shm-size=8g)",
)


@in_memory
def test_in_memory_where_there_is_enough_else_where_temporary_files_are():
    made = [data_folder(free=1, available=1), data_folder(free=1 << 60), data_folder(available=1 << 60)]
    try:
        assert [folder.parent == MEMORY for folder in made] == [True, False, False]
    finally:
        for folder in made:
            folder.rmdir()


def test_a_disk_is_not_memory(tmp_path: Path):
    made = data_folder(tmp_path, free=1, available=1)
    made.rmdir()
    assert made.parent != tmp_path


@in_memory
def test_what_a_killed_process_left_is_removed_and_nothing_else():
    make = "from tests.support.memory_folder import data_folder; print(data_folder(free=1, available=1))"
    root, command = Path(__file__).parents[3], [sys.executable, "-c", make]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=patient(60), check=True)
    left, mine = Path(done.stdout.strip()), data_folder(free=1, available=1)
    try:
        assert left.parent == MEMORY
        another = data_folder(free=1, available=1)
        another.rmdir()
        assert not left.exists() and mine.exists()
    finally:
        mine.rmdir()
