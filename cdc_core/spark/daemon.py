"""Spark's daemon for Python workers, with what every worker needs imported before it forks the first one.

Otherwise each worker imports it on its own, which takes seconds of its first task and a copy of it in memory.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from pyspark.daemon import manager


def serve(preload: Callable[[], object]) -> None:
    """Import, then fork workers until Spark closes the standard input.

    The standard output is Spark's: nothing else may be written there. What cannot be imported is an error of the task
    that needs it.
    """
    spoken, sys.stdout = sys.stdout, sys.stderr
    try:
        preload()
    except Exception as error:
        print(f"wal2lake: {type(error).__name__} while Spark's workers were prepared", file=sys.stderr)
    finally:
        sys.stdout = spoken
    # Else a worker's first collection of garbage writes to, and so copies, every page with objects.
    gc.freeze()
    manager()
