"""What a run of Dagster imports, in the process that a code server forks its runs from."""

import gc
import importlib
import os

# A fork takes one thread only, and OpenBLAS starts more when NumPy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
for module in ("dagster._cli", "wal2lake.pipelines.factory"):
    importlib.import_module(module)
del os.environ["OPENBLAS_NUM_THREADS"]
# As in ``support/forked.py``: what the collector does not look at is not copied.
gc.freeze()
