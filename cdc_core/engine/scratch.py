"""The folder of one process's temporary files: Spark's, its Java process's, and those of libraries.

    <state path>/tmp/<host>-<pid>-<start>/          removed when the process ends, or by the next process after a kill

Libraries put temporary files into the system's folder for them, which is shared, and leave them there when they are
killed. A command has them all here instead. A process is known by its id and the time of its start, so the folders of
dead processes of this host are recognised, and no other one is removed.

Spark's sockets are in Java's temporary folder, and the kernel limits the length of a socket's path to 107 bytes. Where
the state path is too long for that, Java gets a folder of this user in the system's one: ``/tmp/wal2lake-<uid>/…``.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cdc_core.engine.run_state import process_start
from cdc_core.private_files import private_folder
from cdc_core.spark import java_option

_FOLDER = "tmp"
_LONGEST = 60  # of a folder with sockets
_NAME = re.compile(r"(?P<host>.+)-(?P<pid>\d+)-(?P<start>\d+)")


@dataclass(slots=True)
class _Scratch:
    """The folders of this process, and those that it created above them; ``is_on`` within a command.

    ``settings`` are Spark's, empty before there is a folder.
    """

    is_on: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    made: list[Path] = field(default_factory=list)
    parents: list[Path] = field(default_factory=list)


_scratch = _Scratch()


@contextmanager
def scratch_of_command() -> Iterator[None]:
    """Within this context, this process runs only this command: its temporary files may be moved and removed."""
    system, environment = tempfile.gettempdir(), os.environ.get("TMPDIR")
    _scratch.is_on = True
    try:
        yield
    finally:
        _scratch.is_on = False
        if _scratch.made:
            tempfile.tempdir = system
            if environment is None:
                os.environ.pop("TMPDIR", None)
            else:
                os.environ["TMPDIR"] = environment
        for folder in _scratch.made:
            shutil.rmtree(folder, ignore_errors=True)
        for folder in _scratch.parents:
            with suppress(OSError):
                folder.rmdir()  # unless another file is in it: a failed start leaves nothing
        _scratch.settings = {}
        _scratch.made.clear()
        _scratch.parents.clear()


def spark_scratch(state: Path) -> dict[str, str]:
    """Move this process's temporary files into its folder under ``state``; returns Spark's settings for it.

    Of several connectors in one process, the first that calls this decides where the folder is.
    Returns nothing outside of a command, with a Java process of another one, and where the folder cannot be made: then
    the system's folder is used.
    """
    # A Java process that another program started keeps the folders that it has for as long as it runs.
    if not _scratch.is_on or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    if _scratch.settings:
        return dict(_scratch.settings)
    try:
        own = _made(state / _FOLDER)
        java = own if len(os.fsencode(own)) <= _LONGEST else _made(_system_folder())
    except OSError:
        return {}
    tempfile.tempdir = os.environ["TMPDIR"] = str(own)
    _scratch.settings = {
        "spark.local.dir": str(own),
        "spark.sql.warehouse.dir": str(own / "warehouse"),
        "spark.driver.extraJavaOptions": java_option(f"-Djava.io.tmpdir={java}"),
    }
    return dict(_scratch.settings)


def remove_ended(parent: Path) -> None:
    """Remove the folders of processes of this host that have ended. Errors are ignored: a later process tries again."""
    with suppress(OSError):
        for folder in list(parent.iterdir()):
            match = _NAME.fullmatch(folder.name)
            if match and match["host"] == _host() and process_start(int(match["pid"])) != match["start"]:
                _end_java_of(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _end_java_of(folder: Path) -> None:
    """End Java processes whose temporary files are in the folder of a process that has ended.

    Java ends when its stdin is closed, but not if its command was killed while Java was starting: without the
    folder it cannot report its port, and its threads would keep it for ever.
    """
    name = os.fsencode(folder.name)  # that of one process, however the path to it is written
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "comm").read_bytes() != b"java\n":
                continue
            variables = (process / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(b"TMPDIR=") and variable.endswith(b"/" + name) for variable in variables):
                os.kill(int(process.name), signal.SIGKILL)


def _made(parent: Path) -> Path:
    _scratch.parents += [folder for folder in (parent, parent.parent) if not folder.exists()]
    private_folder(parent.parent)
    private_folder(parent)
    remove_ended(parent)
    own = parent / f"{_host()}-{os.getpid()}-{process_start(os.getpid()) or 0}"
    if own not in _scratch.made:
        own.mkdir(0o700, exist_ok=True)
        _scratch.made.append(own)
    return own


def _system_folder() -> Path:
    """This user's folder in the system's one. Raises OSError if it belongs to another user."""
    folder = Path("/tmp") / f"wal2lake-{os.geteuid()}"
    folder.mkdir(0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(folder)
    return folder


def _host() -> str:
    return re.sub(r"[^\w.]", "_", socket.gethostname(), flags=re.ASCII)[:40]
