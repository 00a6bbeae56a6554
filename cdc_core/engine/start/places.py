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

# delta-rs makes a URL of a path: it decodes the first, replaces or drops the second and the last, and fails at others.
_NOT_IN_A_URL = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]|^\x00-\x1f\x7f]")


def lake_finding(path: str) -> Finding:
    """Whether the lake has a path, Delta tables can be at it, and a commit can be made in its folder."""
    if not path:
        return bad("lake", "wal2lake.lake.path is missing.", "Set it to a folder or URI, or set wal2lake.sinks.")
    unusable = None if _is_remote(path) else _NOT_IN_A_URL.search(os.path.abspath(path.removeprefix("file://")))
    if unusable is not None:
        message = (
            f"wal2lake.lake.path is {path!r}, and Delta's libraries read {unusable[0]!r} in a path as another name."
        )
        return bad("lake", message, "Choose a path without %, \\, [, ], |, ^ and control characters.")
    return folder_finding("lake", "wal2lake.lake.path", path, commits=True)


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
    """Whether a local folder can be written or created, by trying; other file systems are not checked.

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
