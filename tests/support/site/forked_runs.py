"""What a run of Dagster imports, in the process that a code server forks its runs from."""

import gc
import os

# A fork takes one thread only, and OpenBLAS starts more when NumPy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
import dagster._cli
import pipelines.factory  # noqa: F401

del os.environ["OPENBLAS_NUM_THREADS"]
# As in ``support/forked.py``: what the collector does not look at is not copied.
gc.freeze()
