"""Whether the folders of a run can be written, and Java can be started, before anything is created."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from cdc_core.errors import ConfigError, LakeError, SparkLostError
from cdc_core.lake import LakePaths
from cdc_core.postgres import Finding, bad, good
from cdc_core.spark import check_programs, has_started, java_program
from cdc_core.storage_faults import storage_fault

# delta-rs makes a URL of a path: it decodes the first, replaces or drops the second and the last, and fails at others.
_NOT_IN_A_URL = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]|^\x00-\x1f\x7f]")

_STATUS = re.compile(r"status code: (\d{3} [A-Z][A-Za-z ]*)")
_REASON_LENGTH = 200


def lake_finding(path: str, paths: LakePaths) -> Finding:
    """Whether the lake has a path, Delta tables can be at it, and a commit can be made in its folder or store.

    Raises StorageError if the store does not answer.
    """
    if not path:
        return bad("lake", "wal2lake.lake.path is missing.", "Set it to a folder or URI, or set wal2lake.sinks.")
    if _is_remote(path):
        return _store_finding(path, paths)
    unusable = _NOT_IN_A_URL.search(os.path.abspath(path.removeprefix("file://")))
    if unusable is not None:
        message = (
            f"wal2lake.lake.path is {path!r}, and Delta's libraries read {unusable[0]!r} in a path as another name."
        )
        return bad("lake", message, "Choose a path without %, \\, [, ], |, ^ and control characters.")
    return folder_finding("lake", "wal2lake.lake.path", path, commits=True)


def _store_finding(path: str, paths: LakePaths) -> Finding:
    if paths.base.startswith("az://"):
        message = f"wal2lake.lake.path is {path}, and no storage account is named."
        return bad("lake", message, "Set wal2lake.storage.azure.account.name or AZURE_STORAGE_ACCOUNT_NAME.")
    try:
        if paths.refuses_second_commit():
            return good("lake", f"The object store of {path} can be written, and refuses a second commit of a version.")
    except FileNotFoundError:
        return bad("lake", f"There is no bucket or container for {path}.", "Create it, or correct wal2lake.lake.path.")
    except (OSError, ValueError) as error:
        if (fault := storage_fault(error)) is not None:
            raise fault from None
        return bad(
            "lake",
            f"The object store of {path} cannot be written{_reason(str(error))}.",
            "Correct wal2lake.storage.* or the environment's credentials; they need to read, write, list and delete.",
        )
    return bad(
        "lake",
        f"The object store of {path} ignores the condition of a PUT: it replaced an object that was to be created. "
        "Two writers of one table would lose commits.",
        "Use a store with conditional PUTs (If-None-Match; on Google's, x-goog-if-generation-match).",
    )


def _reason(text: str) -> str:
    """Return what a store's error says, in parentheses: the status of its answer, or else the first line."""
    status = _STATUS.search(text)
    return f" ({status[1] if status else text.splitlines()[0][:_REASON_LENGTH]})" if text else ""


def java_finding(settings: tuple[tuple[str, str], ...], start: Callable[[], object]) -> Finding:
    """Whether the Java, the Spark and the Python can be started that the environment names.

    ``settings`` are those of ``wal2lake.spark.*``, which may keep Spark from starting. It is started by ``start`` where
    nothing shows that it can be: a first start downloads its jars.
    """
    java = java_program()
    if java.problem:
        return bad("java", java.problem, java.remedy)
    try:
        check_programs(dict(settings).get("spark.master", "local").startswith("local"))
        if settings or not has_started():
            start()
    except (ConfigError, SparkLostError) as error:
        return bad("java", error.message, error.remedy)
    return good("java", f"Java {java.version}: {java.path}.")


def folder_finding(check: str, name: str, path: str, *, commits: bool = False) -> Finding:
    """Whether a local folder can be written or created, by trying; a URI of the state is not checked.

    ``commits``: whether a commit can be made in it, too, as a run makes it.

    Nothing is left of the trial. Permissions alone do not tell: /proc, for one, has them and refuses.
    """
    if _is_remote(path):
        return good(check, f"{name} is {path}; write access is checked by its file system at the first write.")
    folder = Path(path.removeprefix("file://")).absolute()
    nearest = next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))
    if not nearest.is_dir():
        return bad(check, f"{name} is {path}, and {nearest} is not a folder.", "Correct the path.")
    try:
        with tempfile.TemporaryDirectory(prefix=".wal2lake-", dir=nearest) as trial:
            if commits:
                LakePaths.try_commit(trial)
    except LakeError as error:
        return bad(check, error.message.replace(trial, str(path)), error.remedy)
    except OSError as error:
        message = f"{name} is {path}, and {nearest} cannot be written: {error.strerror}."
        return bad(check, message, "Correct its permissions or the path.")
    return good(check, f"The folder {path} of {name} is writable.")


def _is_remote(path: str) -> bool:
    return "://" in path and not path.startswith("file://")
