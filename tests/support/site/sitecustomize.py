"""Every Python process of a test run starts with this (``PYTHONPATH`` in ``conftest.py``).

Most of them import thousands of modules, of which nothing is ever garbage, and end soon. With the usual threshold the
collector looks at them again and again, which took a twentieth of the CPU time of `make test`.
"""

import gc
import os
import sys
from pathlib import Path

gc.set_threshold(50_000, 20, 50)

if "dagster-daemon" in [Path(argument).name for argument in sys.orig_argv[1:2]]:
    # Dagster's daemon starts another code server each minute, to see code that was changed: five CPU seconds each.
    from dagster._daemon import controller

    controller.RELOAD_WORKSPACE_INTERVAL = 3600

if os.environ.get("WAL2LAKE_TEST_FORKED_RUNS") and sys.orig_argv[1:5] == ["-m", "dagster", "api", "grpc"]:
    # A code server starts a new Python for each run, which imports for two CPU seconds. Forked from a process that has
    # imported, a run still has a process of its own.
    import multiprocessing

    multiprocessing.set_forkserver_preload(["forked_runs"])

    def _get_context(method=None, given=multiprocessing.get_context):
        return given("forkserver" if method == "spawn" else method)

    multiprocessing.get_context = _get_context
