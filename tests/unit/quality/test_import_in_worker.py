"""Great Expectations must load in a process whose main module has no file, as Dagster's run workers are."""

import subprocess
import sys

import pytest

from tests.support.waits import patient


@pytest.mark.slow
def test_the_library_loads_where_the_main_module_has_no_file():
    code = (
        "import sys; main = sys.modules['__main__']; main.__spec__ = None; main.__dict__.pop('__file__', None);"
        "from cdc_core.quality.great_expectations import library; print(library().__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=patient(120), check=False
    )
    assert done.stdout.strip().endswith("great_expectations"), done.stderr[-2000:]
