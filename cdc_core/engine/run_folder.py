"""The folder of one run's temporary files: spool, parts of large slices and chunks of snapshots.

    <state path>/spool/<topic.prefix>-<run>/        the files; removed when the run ends
    <state path>/spool/<topic.prefix>-<run>.lock    locked while the run's process exists, by the kernel

The name is unique, so no run ever reads or removes another's files, whatever shares the state path. A process that is
killed cannot remove its folder; the next run that starts with the same state path removes it: a lock that can be taken
proves that its process has ended, because the kernel releases it then and not before. A stopped process (SIGSTOP)
keeps its lock. If its folder is removed nevertheless, it fails when it continues: its paths never exist again.

On network storage the lock is as good as the server's: NFS forwards flock to the server unless it is mounted with
``nolock``. A folder of another host is therefore removed only if its lock file was not touched for _SILENT_SECONDS
either; a living run touches it every _TOUCH_SECONDS. On storage without locks nothing is removed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from cdc_core.connector_threads import ConnectorThread
from cdc_core.errors import LakeError
from cdc_core.lake import Owner
from cdc_core.private_files import lock_file, private_folder
from cdc_core.storage_faults import storage_fault

_log = logging.getLogger(__name__)

_TOUCH_SECONDS, _SILENT_SECONDS = 60.0, 900.0
_LOCK = ".lock"


class RunFolder:
    """A context manager: the folder exists while it is open. ``path`` is the folder, ``owner`` the run."""

    def __init__(self, parent: Path, name: str, owner: Owner) -> None:
        """Create and lock the folder ``<name>-<run>`` in ``parent``.

        Raises StorageError if there is no room for it, LakeError if it cannot be created.
        """
        self.owner = owner
        plain = re.sub(r"[^\w-]", "_", name, flags=re.ASCII)[:60]
        self.path = parent / f"{plain}-{owner.run}"
        self._lock_path = parent / f"{self.path.name}{_LOCK}"
        self._ended = threading.Event()
        self._lock: int | None = None
        try:
            private_folder(parent.parent)
            private_folder(parent)
            self._lock = lock_file(self._lock_path, create=True, waits=True)  # one that removes leftovers holds it
            if self._lock is not None:
                facts = {"host": socket.gethostname(), "pid": os.getpid(), **asdict(owner)}
                os.write(self._lock, json.dumps(facts).encode())
            self.path.mkdir(0o700)
        except OSError as error:
            with suppress(OSError):
                self.close()
            raise storage_fault(error) or LakeError(
                f"The folder {self.path} for temporary files cannot be created ({error.strerror}).",
                "Make wal2lake.state.path a folder that this user may write to.",
            ) from None
        if self._lock is None:
            _log.warning("%s is on storage without file locks: leftovers of killed runs are not removed.", parent)
        else:
            _remove_ended(parent, self._lock)
        ConnectorThread(target=self._touch, name="run-folder", daemon=True).start()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and release its lock."""
        self._ended.set()
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _touch(self) -> None:
        while not self._ended.wait(_TOUCH_SECONDS):
            with suppress(OSError):
                os.utime(self._lock_path)


def _remove_ended(parent: Path, own: int) -> None:
    """Remove the folders of runs whose process has ended. Errors are ignored: a later run tries again."""
    now = os.fstat(own).st_mtime  # the storage's clock
    for path in _found(parent, f"*{_LOCK}"):
        lock = lock_file(path)
        if lock is None:
            continue
        with suppress(OSError):
            if _is_of_this_host(lock) or now - path.stat().st_mtime > _SILENT_SECONDS:
                shutil.rmtree(path.with_name(path.name.removesuffix(_LOCK)), ignore_errors=True)
                path.unlink(missing_ok=True)
        os.close(lock)


def _found(parent: Path, pattern: str) -> Iterator[Path]:
    with suppress(OSError):
        yield from sorted(parent.glob(pattern))


def _is_of_this_host(lock: int) -> bool:
    """Whether the lock file was written on this host. An empty one is of a run that was killed when it created it."""
    try:
        return bool(json.loads(os.pread(lock, 4096, 0) or b"{}").get("host", "") in ("", socket.gethostname()))
    except (ValueError, AttributeError):
        return True
