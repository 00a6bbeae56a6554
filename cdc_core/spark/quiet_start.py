"""Filters what Spark's processes print: startup messages, and stacks of errors that a command reports itself.

The JVM writes some of these lines before any logger is configured, so logging properties have no effect on them, and
its workers write to the same stderr. Everything else is passed on; with ``WAL2LAKE_VERBOSE`` set, everything is.

An error in a task reaches the driver as an exception, and the command prints its message. What Spark prints about the
same error is a record of its logger with a stack of Java and Python, in which the text of the exception is quoted,
maybe with values of a row.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

VERBOSE_VARIABLE = "WAL2LAKE_VERBOSE"
_log = logging.getLogger("wal2lake.spark")
_STDERR = 2
_STARTUP_OUTPUT = re.compile(
    rb"WARNING: Using incubator modules: |Using Spark's default log4j profile: |Setting default log level to |"
    rb"Deleted \d+ files and directories in a total of |To adjust logging level use |Setting Spark log level to |"
    rb"\S+ \S+ WARN (Utils: Your hostname|Utils: Set SPARK_LOCAL_IP|NativeCodeLoader: Unable to load native)"
)
_RECORD = re.compile(rb"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:ERROR|WARN|FATAL|INFO) (\S+?):")
# These log what the driver gets as an exception, or what follows from the end of a process.
_REPORTED = re.compile(
    rb"Executor|TaskSetManager|TaskSchedulerImpl|DAGScheduler|TaskResultGetter|Inbox|Utils|ShutdownHookManager|"
    rb"PythonRunner|PythonUDFRunner|PythonWorkerFactory|PythonGatewayServer|BasePythonRunner|ReaderIterator|"
    rb"DiskBlockObjectWriter|SparkUncaughtExceptionHandler|FileFormatWriter|AsyncEventQueue|LiveListenerBus"
)
_STACK = re.compile(
    rb"\s|Caused by: |Suppressed: |Traceback \(most recent call last\)|During handling of the above|"
    rb"The above exception was|Driver stacktrace|(?:[A-Za-z_][\w$]*\.)*[A-Za-z_][\w$]*(?:Error|Exception|Interrupt)\b|$"
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
    _last_lines.clear()
    passing.start()
    try:
        yield writing
    finally:
        os.close(writing)
        if in_main:
            signal.signal(signal.SIGINT, interrupt)


def pass_on(reading: int, target: int) -> None:
    """Copy lines between file descriptors until the last writer closes, without those that are filtered; closes both.

    Where a command's lines are records of ``logging`` (``RELAYED``), these lines are, too.
    """
    lines_of = OutputFilter(everything=bool(os.environ.get(VERBOSE_VARIABLE)))
    try:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                _last_lines.append(line)
                if not lines_of.passes(line):
                    continue
                if RELAYED.is_set():
                    _log.error("%s", line.decode(errors="replace").rstrip())
                else:
                    os.write(target, line)
    except OSError:
        return  # this process's stderr is closed
    finally:
        os.close(target)


def last_lines() -> str:
    """Return what the Java process that was started last has printed before it ended."""
    return b"".join(_last_lines).decode(errors="replace")


_last_lines: deque[bytes] = deque(maxlen=200)

RELAYED = threading.Event()
"""Set by a command whose lines are JSON objects."""


class OutputFilter:
    """Decides line by line what is passed on; a line that continues a record shares its fate, or is its stack."""

    def __init__(self, *, everything: bool = False) -> None:
        self._everything = everything

    def passes(self, line: bytes) -> bool:
        """Whether the line is passed on."""
        if _STARTUP_OUTPUT.match(line):
            return False
        if self._everything:
            return True
        record = _RECORD.match(line)
        if record is not None:
            return _REPORTED.fullmatch(record[1]) is None
        return _STACK.match(line) is None
