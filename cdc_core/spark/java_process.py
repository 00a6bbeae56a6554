"""Spark's Java process ends with the command that started it.

PySpark leaves that to Java: it ends when its stdin is closed. A Java process that is still starting when its command
ends does not: it fails to report its port into a folder that is gone, and its threads keep it for ever. So commands
know the process from its first moment, and end it themselves.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

# What Java needs to remove its own files.
_SECONDS = 10.0


@dataclass(slots=True)
class _Java:
    """The Java processes of this command; ``is_over`` once no other may be started."""

    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_over: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


_java = _Java()


class JavaProcess(subprocess.Popen[bytes]):
    """What PySpark starts Java with, from a thread of its own."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with _java.lock:
            if _java.is_over:
                raise RuntimeError("The command has ended.")
            super().__init__(*arguments, **options)
            _java.started.append(self)


@contextmanager
def java_of_command() -> Iterator[None]:
    """End the Java processes that were started within this context: in order, or at once after an error."""
    with _java.lock:
        _java.is_over = False
    is_done = False
    try:
        yield
        is_done = True
    finally:
        _end(_SECONDS if is_done else 0)


def _end(seconds: float) -> None:
    with _java.lock:
        _java.is_over = True
        started, _java.started = _java.started, []
    for process in started:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
