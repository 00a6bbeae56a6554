"""Every module of the tests can be imported: an error there would be seen only when its own tests run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waits import patient

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_every_test_is_found(request):
    if any((ROOT / argument).resolve() == ROOT / "tests" for argument in request.config.args):
        return  # this run has imported all of them before its first test
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "tests",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patient(300), check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
