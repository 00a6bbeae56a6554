"""The quickstart, as a user would follow it: every command of the page is run, in an empty folder, against a server.

Not run are the blocks marked ``shell`` instead of ``bash``: the installation, and ``dagster dev``, which does not end.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.program import Program
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str, str]]:
    """Language, title and text of each block."""
    for match in _BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        yield match[1], match[2] or "", match[3]


class Shell:
    """What the reader's shell does. ``wal2lake`` borrows the imports and the Java process of the tests."""

    def __init__(self, pg: Cluster, program: Program, folder: Path, database: str) -> None:
        self._program = program
        self._folder = folder
        # The reader's server has its own address, and a password.
        self._places = {"localhost": pg.host, "5432": str(pg.port), "PGDATABASE=shop": f"PGDATABASE={database}"}
        self._places |= {"database.dbname=shop": f"database.dbname={database}"}
        programs = f"{pg.bin}:{Path(sys.executable).parent}:/usr/bin:/bin"
        self.environment = {"PATH": programs, "PGPASSWORD": pg.password}
        self.printed: dict[str, str] = {}

    def placed(self, text: str) -> str:
        for here, there in self._places.items():
            text = text.replace(here, there)
        return text

    def run(self, line: str) -> None:
        line = self.placed(line)
        if line.startswith("export "):
            for word in shlex.split(line)[1:]:
                name, _, value = word.partition("=")
                self.environment[name] = value.replace("$PWD", str(self._folder))
        elif line.startswith("wal2lake ") and "dagster-home" not in line:
            command, _, target = line.partition(" > ")
            _, name, file, *arguments = shlex.split(command)
            done = self._program.run(name, Path(file), *arguments, **self.environment)
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            if target:
                (self._folder / target).write_text(done.stdout)
        else:
            shell = ["bash", "-e", "-c", line]
            ended = subprocess.run(
                shell,
                check=False,
                cwd=self._folder,
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                timeout=patient(200),
            )
            assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
            self.printed[line.split()[-1]] = ended.stdout


def test_every_command_of_the_quickstart_does_what_the_page_says(
    pg: Cluster, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = pg.database("quick")
    monkeypatch.chdir(tmp_path)
    shell = Shell(pg, program, tmp_path, database)
    ran = 0
    try:
        for language, title, text in blocks():
            if language == "bash":
                for line in text.splitlines():
                    shell.run(line)
                    ran += 1
            elif title.startswith("output of "):
                assert shell.printed[title.removeprefix("output of ")] == text
            elif title:
                (tmp_path / title).write_text(shell.placed(text))
        assert ran >= 15
        assert not (tmp_path / "lake" / "shop").exists()
        assert pg.execute(database, "select slot_name from pg_replication_slots where slot_name = 'shop'") == []
    finally:
        pg.execute(database, "drop owned by wal2lake; drop role if exists wal2lake")
