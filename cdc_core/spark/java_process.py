"""Spark's Java process ends with the command that started it.

PySpark leaves that to Java: it ends when its stdin is closed. A Java process that is still starting when its command
ends does not: it fails to write its port into a removed folder, and its threads keep it alive. So commands
know the process from its first moment, and end it themselves.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from cdc_core.spark.environment import java_environment

# What Java needs to remove its own files.
_SECONDS = 10.0


@dataclass(slots=True)
class _Java:
    """The Java processes of this command, none outside of one (``is_on``).

    ``late`` are the threads that still ran when a command ended; they may start no Java.
    """

    is_on: bool = False
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    late: WeakSet[threading.Thread] = field(default_factory=WeakSet)
    lock: threading.Lock = field(default_factory=threading.Lock)


_java = _Java()


class JavaProcess(subprocess.Popen[bytes]):
    """The function by which PySpark starts Java, in a separate thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with _java.lock:
            if threading.current_thread() in _java.late:
                raise RuntimeError("The command has ended.")
            if "env" in options:
                options["env"] = java_environment(options["env"], arguments[0])
            super().__init__(*arguments, **options)
            if _java.is_on:
                _java.started.append(self)


def java_option(text: str) -> str:
    """Return one option of Java as a part of ``spark.driver.extraJavaOptions``, which Spark divides as a shell does."""
    return re.sub(r"([\s\"'\\])", r"\\\1", text)


def was_killed() -> bool:
    """Whether the last Java process of this command was ended by a signal."""
    return bool(_java.started) and (_java.started[-1].poll() or 0) < 0


@contextmanager
def java_of_command() -> Iterator[None]:
    """End the Java processes that were started within this context: in order, or at once after an error."""
    _java.is_on = True
    is_done = False
    try:
        yield
        is_done = True
    finally:
        _end(_SECONDS if is_done else 0)


def _end(seconds: float) -> None:
    with _java.lock:
        _java.is_on = False
        _java.late.update(thread for thread in threading.enumerate() if thread is not threading.current_thread())
        started, _java.started = _java.started, []
    if started:
        _ask_no_more()
    for process in started:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ask_no_more() -> None:
    """Let py4j's thread not report objects that are no longer used to a Java that ends: it would log a stack."""
    from pyspark import SparkContext  # a command without Spark does not load it

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway._gateway_client.is_connected = False
