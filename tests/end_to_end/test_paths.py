"""Folders of the lake and of the state with any characters in their names, on storage of other kinds."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

T = TableId("public", "t")
PLAIN = "My Projects ü, 'q' \"d\" #?{}*;&=+@$(x) 5%"
"""What a path may contain, for Delta too."""


def test_folders_whose_names_mean_something_to_java_or_to_urls(pg: Cluster, program: Program, tmp_path: Path) -> None:
    database = pg.database("paths")
    pg.execute(database, "create table t (id int primary key, v text); insert into t values (1, 'a'), (2, 'b')")
    state = tmp_path / f"{PLAIN} %20 \\ [y]|^ {'long' * 20}"
    settings = {
        **lake_settings(tmp_path),
        "wal2lake.lake.path": str(tmp_path / PLAIN),
        "wal2lake.state.path": str(state),
    }
    file = write_properties(tmp_path / "paths.properties", pg.properties(database, **settings))
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value>hdfs://none.invalid:8020</value></property>"
        "</configuration>"
    )
    # As users start it, with a Java process that gets these folders: in a locale without such letters, on a machine
    # with the variables of a cluster's node, whose name does not resolve.
    told = {
        "LC_ALL": "C",
        "HADOOP_CONF_DIR": str(tmp_path),
        "CONTAINER_ID": "none",
        "SPARK_LOCAL_DIRS": "/proc/none",
        "SPARK_LOCAL_IP": "none.invalid",
        "SPARK_LOCAL_HOSTNAME": "none.invalid",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = program.stream(file, cold=True, **told)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    pg.execute(database, "update t set v = 'c' where id = 1; insert into t values (3, 'd'); delete from t where id = 2")
    done = program.stream(file, cold=True, **told)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert difference(file, [T]) == [] and state.is_dir()

    # What Delta's libraries would read as the name of another folder.
    for name in ("a%20b", "back\\slash", "[y]", "a|b", "a^b", "new\nline"):
        settings["wal2lake.lake.path"] = str(tmp_path / name)
        file = write_properties(tmp_path / "refused.properties", pg.properties(database, **settings))
        text = file.read_text().replace("new\nline", "new\\nline")
        file.write_text(text)
        for command in ("check", "run"):
            done = program.run(command, file)
            said = done.stdout + done.stderr
            assert done.returncode == 1 and "read" in said and "as another name" in said, said[-3000:]
            assert "Traceback" not in said and not (tmp_path / name).exists()


# link and linkat, by machine (linux/unistd.h).
_LINKS = {"x86_64": (86, 265), "aarch64": (37,)}


class _Filter(ctypes.Structure):
    _fields_: ClassVar = [
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_: ClassVar = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(_Filter))]


def without_hard_links() -> None:
    """In a process that is about to start a program: the kernel answers as storage does that has no hard links."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = _LINKS[platform.machine()]
    lines = [_Filter(0x20, 0, 0, 0)]  # the number of the call
    lines += [_Filter(0x15, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    lines += [_Filter(0x06, 0, 0, 0x7FFF0000), _Filter(0x06, 0, 0, 0x00050000 | errno.EPERM)]  # allowed; refused
    rules = _Program(len(lines), (_Filter * len(lines))(*lines))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(rules)):
        raise OSError(ctypes.get_errno(), "no filter")


def test_a_lake_on_storage_without_hard_links_is_refused_before_anything_is_made(pg: Cluster, tmp_path: Path) -> None:
    database = pg.database("links")
    pg.execute(database, "create table t (id int primary key)")
    lake = lake_settings(tmp_path)
    file = write_properties(tmp_path / "links.properties", pg.properties(database, **lake))

    def said(command: str) -> str:
        done = subprocess.run(
            [Path(sys.executable).parent / "wal2lake", command, file],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "JAVA_HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            timeout=patient(100),
            preexec_fn=without_hard_links,
            check=False,
        )
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
        return done.stdout + done.stderr

    for command in ("check", "run"):
        told = said(command)
        assert f"The storage of {lake['wal2lake.lake.path']} has no hard links" in told, told
        assert "Keep the lake on a local disk" in told and "defect" not in told
    assert pg.execute(database, "select 1 from pg_replication_slots where database = %s", [database]) == []
    assert not (tmp_path / "lake").exists()
