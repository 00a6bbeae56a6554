"""Starts ``wal2lake`` as processes of their own without importing it each time, most of what a short run costs.

A server process imports what runs import, has no other thread, and forks for each run. The child gets the given
arguments, environment and output; the server passes on how it ended. So a run can be killed, signalled and read like
one that a shell started; only its imports are there already. It ends as an interpreter ends, but does not take its
modules apart: that touches, and so copies, every page that the server has filled (0.1 s of CPU time for each run).

    server = ForkServer()
    run = server.start(["wal2lake", "run", "shop.properties"], environment, stdout=file, stderr=file)
    run.wait()

Spark's Python workers are started the same way: ``python`` is a program that Spark takes for Python. When it is asked
for pyspark.daemon it passes its pipes on to the server, which forks the daemon; so workers need not import, either.
"""

from __future__ import annotations

import atexit
import marshal
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NoReturn

from tests.support.waits import patient

_START_SECONDS = patient(120)
# What a run that merges has loaded when it ends.
_MODULES = (
    *("cdc_core.cli.program", "cdc_core.assemble", "cdc_core.lake.slice.task", "cdc_core.spark.session"),
    *("cdc_core.quality.duck", "cdc_core.engine.status", "rich._emoji_codes", "psycopg", "deltalake"),
    *("pyspark.sql", "pyspark.worker", "pyspark.testing", "pyarrow.parquet", "pyarrow.dataset", "pyarrow.compute"),
)


# It imports nothing that Python does not have built in: it starts within milliseconds, and each run with Spark has one.
_PYTHON = """#!{python} -IS
import _socket, marshal, posix, sys
if sys.argv[1:2] != ["-m"] or sys.argv[2] not in ("pyspark.daemon", "cdc_core.engine.worker_daemon"):
    posix.execv({python!r}, [{python!r}, *sys.argv[1:]])
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
line.connect({path!r})
order = dict(module=sys.argv[2], arguments=sys.argv[2:], environment=posix.environ, folder=posix.getcwd())
order = marshal.dumps(order)
files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
line.sendmsg([len(order).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
line.sendall(order)
line.recv(4, _socket.MSG_WAITALL)
for own in (0, 1, 2):
    posix.close(own)
posix._exit(max(0, int.from_bytes(line.recv(4, _socket.MSG_WAITALL), "big", signed=True)))
"""


class ForkServer:
    """Ends with the process that made it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="w2l-fork-")
        self._path = str(Path(self._folder.name) / "socket")
        self.python = Path(self._folder.name) / "python"
        self.python.write_text(_PYTHON.format(python=sys.executable, path=self._path))
        self.python.chmod(0o755)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked", self._path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the server of forked runs did not start"

    def start(self, arguments: list[str], environment: dict[str, str], stdout: IO[Any], stderr: IO[Any]) -> Forked:
        """Start a run whose output goes to these files."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.connect(self._path)
        order = marshal.dumps({"arguments": arguments, "environment": environment, "folder": str(Path.cwd())})
        with open(os.devnull) as nothing:
            socket.send_fds(line, [len(order).to_bytes(4)], [nothing.fileno(), stdout.fileno(), stderr.fileno()])
        line.sendall(order)
        line.settimeout(_START_SECONDS)
        return Forked(arguments, line, int.from_bytes(_exactly(line, 4)))

    @property
    def pid(self) -> int:
        """The parent of every run, and of the daemons of their Python workers."""
        return self._process.pid

    def close(self) -> None:
        """End the server; runs that still run go on."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(patient(20))
        self._folder.cleanup()


class Forked:
    """A run, with the part of ``subprocess.Popen`` that tests use. Several threads may wait for its end, and signal it.

    ``line`` is where the server tells how it ended, and ends itself: whoever waits there sees one of them.
    """

    def __init__(self, arguments: list[str], line: socket.socket, pid: int) -> None:
        self.args, self.pid = arguments, pid
        self.returncode: int | None = None
        self._line, self._reading = line, threading.Lock()
        # Not where one thread has read it: another that waits would not be woken, or read from a closed one.
        weakref.finalize(self, line.close)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._end(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        code = self._end(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, sign: int) -> None:
        """Nothing where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _end(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._line, selectors.EVENT_READ)
                is_told = waiting.select(seconds)
            with self._reading:
                if is_told and self.returncode is None:
                    self.returncode = int.from_bytes(_exactly(self._line, 4), signed=True)
        return self.returncode


def _exactly(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = line.recv(count - len(found))
        assert part, "the server of forked runs has ended"
        found += part
    return found


def _serve(path: str) -> str:
    """Fork a child for each order until stdin closes. Returns in a child only: the module to run, empty for main()."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen()
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing.fileno())
    lines: dict[int, socket.socket] = {}
    daemons: set[int] = set()
    waiting = selectors.DefaultSelector()
    for source in (listener, reading, sys.stdin):
        waiting.register(source, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        sources = [key.fileobj for key, _ in waiting.select()]
        if reading in sources:
            reading.recv(4096)
            _tell_ends(lines, daemons)
        if listener in sources:
            line, _ = listener.accept()
            size, files, _, _ = socket.recv_fds(line, 4, 3)
            order = marshal.loads(_exactly(line, int.from_bytes(size)))
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for opened in (listener, reading, writing, line, waiting, *lines.values()):
                    opened.close()
                _become(order, files)
                return str(order.get("module", ""))
            lines[pid] = line
            if "module" in order:
                daemons.add(pid)
            for file in files:
                os.close(file)
            line.sendall(pid.to_bytes(4))
        if sys.stdin in sources:
            os._exit(0)


def _tell_ends(lines: dict[int, socket.socket], daemons: set[int]) -> None:
    """Pass on how runs and daemons ended. The workers of an ended daemon are ended, too.

    Spark's daemon ends them by SIGHUP, which a worker ignores that it has only just forked: where there is much load,
    one in some kills. It would merge beside the next run, at any time. Writers that outlast their runs have tests that
    choose the moment.
    """
    for pid in [*lines]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            if pid in daemons:
                daemons.remove(pid)
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            with lines.pop(pid) as line:
                try:
                    line.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
                except OSError:
                    continue  # nobody waits for it any more


def _become(order: dict[str, Any], files: list[int]) -> None:
    """Make this process the one that was ordered."""
    for sign in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(sign, signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL)
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in order["environment"].items()})
    time.tzset()
    sys.argv = order["arguments"]
    program = ModuleType("__main__")
    program.__file__ = sys.argv[0]
    sys.modules["__main__"] = program


def _ended_by(body: Callable[[], object]) -> NoReturn:
    """Run ``body`` and end the process with the code that an interpreter would end with."""
    code = 0
    try:
        body()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        output.flush()
    os._exit(code & 0xFF)


def _do_first_validation() -> None:
    """Import Great Expectations, which takes seconds, for every run."""
    from tqdm.std import tqdm

    from cdc_core.quality.great_expectations import library

    tqdm.monitor_interval = 0  # its thread, which shows progress that nobody sees
    library()


if __name__ == "__main__":
    import importlib

    for module in _MODULES:
        importlib.import_module(module)
    _do_first_validation()
    importlib.import_module("tests.support.lent_context").lend()
    threads = [(entry / "comm").read_text().strip() for entry in Path("/proc/self/task").iterdir()]
    # A fork takes one thread only. Arrow's allocator starts its own again by itself.
    assert len([name for name in threads if name != "jemalloc_bg_thd"]) == 1, f"{threads}"
    # What was imported is never collected in a child, which would copy its pages.
    __import__("gc").freeze()
    if name := _serve(sys.argv[1]):
        import runpy

        _ended_by(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))
    else:
        from cdc_core.cli import main

        _ended_by(main)
