"""What every Python process of a test run starts with."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waits import patient


def test_a_process_that_a_test_starts_collects_less_often() -> None:
    asked = [sys.executable, "-c", "import gc; print(gc.get_threshold())"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=patient(60), check=True)
    assert done.stdout == "(50000, 20, 50)\n"
