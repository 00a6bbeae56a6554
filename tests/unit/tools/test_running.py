"""What a run in the background has printed is read while it prints (``support/program.py``)."""

from __future__ import annotations

import subprocess
import sys
import tempfile

from tests.support.program import Running
from tests.support.waits import patient

_LINES = 3000
_PRINTS = f"for number in range({_LINES}): print(number, flush=True)"


def test_reading_moves_nothing_that_the_run_prints() -> None:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-c", _PRINTS], stdout=output)
        running = Running(process, output)
        while process.poll() is None:
            running.said()
        assert running.end() == 0
        assert running.said().splitlines() == [str(number) for number in range(_LINES)]
        assert process.wait(patient(1)) == 0
