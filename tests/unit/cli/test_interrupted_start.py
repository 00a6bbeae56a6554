"""Ctrl-C while the commands are being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.support.waits import patient, wait_until

# Where the tests run in the background of a shell, SIGINT is ignored, and so it would be by what they start.
PROGRAM = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("cdc_core", run_name="__main__")
"""


def test_ctrl_c_during_the_imports_ends_the_program_with_one_word():
    command = [sys.executable, "-c", PROGRAM, "status", "/no/such/file.properties"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    maps = Path("/proc") / str(started.pid) / "maps"
    try:
        wait_until(lambda: "numpy" in maps.read_text() or started.poll() is not None, 60, "an import of a library")
        started.send_signal(signal.SIGINT)
        said, error = started.communicate(timeout=patient(60))
    finally:
        started.kill()
    assert (started.returncode, said, error) == (1, "", "Stopped.\n")
