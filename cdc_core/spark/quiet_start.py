"""Spark starts without its small talk: what the JVM writes to stderr passes through us, and known chatter is left out.

The virtual machine writes some of these lines before any logger is configured, so no logging property reaches them. All
else, an error above all, is passed on to stderr unchanged. The filter serves the JVM for as long as it lives.
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
    """The file descriptor that a JVM started inside is to have as its stderr; our own stderr is left alone.

    Our handler of SIGINT is as before afterwards: Spark's context puts its own in place, which would end a run in the
    middle of a step.
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
    """Copy lines from one file descriptor to another, chatter left out, until the last writer is gone; closes both."""
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                if not _STARTUP_OUTPUT.match(line):
                    os.write(target, line)
    except OSError:
        return  # our own stderr is closed: nobody listens
    finally:
        os.close(target)
