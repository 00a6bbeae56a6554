"""The archive of the classes that Spark's Java process loads (Java's class-data sharing): half of its start.

A start with a first merge loads some 25,000 classes from 200 jars. Java can map them from one file instead, as it
verified and laid them out before. ``make_class_archive`` makes the file, setup runs it. The file is valid only for the
Java and the class path that made it, jars with their sizes and times: Java checks that itself and loads classes from
the jars, without a message, if the archive does not fit or is not there. ``WAL2LAKE_CLASS_ARCHIVE=off`` turns it off.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "WAL2LAKE_CLASS_ARCHIVE"
# Java would warn on stdout of an archive that does not fit.
_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def archive_name(spark_home: Path, jars: Iterable[str]) -> str | None:
    """Return the archive's name, without its size, for this Java, Spark and these jars; None without Java or a jar."""
    java = _java()
    if java is None:
        return None
    try:
        parts = [_identity(java), str(spark_home), *(_identity(Path(jar)) for jar in jars)]
    except OSError:
        return None
    return f"classes-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"


def archive_in(folder: Path, name: str | None) -> Path | None:
    """Return the archive if it is there as a whole: its size is in its name, because Java would fail on a part."""
    for file in folder.glob(f"{name}-*.jsa"):
        if file.name == sized(name, file.stat().st_size):
            return file
    return None


def sized(name: str | None, size: int) -> str:
    """Return the file name of an archive of ``size`` bytes."""
    return f"{name}-{size}.jsa"


def reading_options(archive: Path | None, java_options: str) -> str:
    """Return Java's options with those that read the archive: unchanged if there is none, it is turned off, or the
    user's own options name one.
    """
    if archive is None or is_turned_off() or " " in str(archive) or _names_one(java_options):
        return java_options
    return f"{java_options} {_SILENT} -XX:SharedArchiveFile={archive}".strip()


def is_turned_off() -> bool:
    """Whether ``WAL2LAKE_CLASS_ARCHIVE`` is ``off``."""
    return os.environ.get(VARIABLE, "").strip().lower() == "off"


def _names_one(java_options: str) -> bool:
    return any(option in java_options for option in ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit"))


def _java() -> Path | None:
    """The Java that Spark's script starts."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    return Path(found).resolve() if found else None


def _identity(file: Path) -> str:
    stat = file.stat()
    return f"{file} {stat.st_size} {stat.st_mtime_ns}"
