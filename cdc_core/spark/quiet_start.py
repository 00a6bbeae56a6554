"""Filters the JVM's stderr at Spark's start: known startup messages are removed.

The JVM writes some of these lines before any logger is configured, so logging properties have no effect on them.
Everything else, errors in particular, is written to stderr unchanged. The filter works until the JVM ends.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2
_STARTUP_OUTPUT = re.compile(
    rb"WARNING: Using incubator modules: |Using Spark's default log4j profile: |Setting default log level to |"
    rb"Deleted \d+ files and directories in a total of |To adjust logging level use |Setting Spark log level to |"
    rb"\S+ \S+ WARN (Utils: Your hostname|Utils: Set SPARK_LOCAL_IP|NativeCodeLoader: Unable to load native)"
)


@contextmanager
def quiet_start() -> Iterator[int]:
    """Yield the file descriptor for the stderr of a JVM started inside; this process's own stderr is not changed.

    The handler of SIGINT is restored afterwards: Spark's context sets its own, which would end a run in the middle of a
    step.
    """
    in_main = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT)
    reading, writing = os.pipe()
    passing = threading.Thread(target=pass_on, args=(reading, os.dup(_STDERR)), name="spark-stderr", daemon=True)
    passing.start()
    try:
        yield writing
    finally:
        os.close(writing)
        if in_main:
            signal.signal(signal.SIGINT, interrupt)


def pass_on(reading: int, target: int) -> None:
    """Copy lines between file descriptors, without startup messages, until the last writer closes; closes both."""
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not _STARTUP_OUTPUT.match(line):
                    os.write(target, line)
    except OSError:
        return  # this process's stderr is closed
    finally:
        os.close(target)
