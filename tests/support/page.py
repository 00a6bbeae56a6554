"""A page of the documentation as a reader follows it: its files are written, its commands run, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.program import Program
from tests.support.waits import patient

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks(page: str) -> Iterator[tuple[str, str, str]]:
    """Language, title and text of each block."""
    for match in _BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        yield match[1], match[2] or "", match[3]


class Shell:
    """What the reader's shell does. ``wal2lake`` borrows the imports and the Java process of the tests."""

    def __init__(
        self, pg: Cluster, program: Program, folder: Path, database: str, places: Mapping[str, str] | None = None
    ) -> None:
        """``places``: what stands in this server's place of what the page names."""
        self._program = program
        self._folder = folder
        # The reader's server has its own address, and a password.
        self._places = {"localhost": pg.host, "5432": str(pg.port), "PGDATABASE=shop": f"PGDATABASE={database}"}
        self._places |= {"database.dbname=shop": f"database.dbname={database}"}
        self._places |= places or {}
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

    def follow(self, page: str) -> int:
        """Write the files of a page and run its commands; returns the number of commands.

        Blocks with the title "output of NAME" are what the last command that ended in NAME printed.
        """
        ran = 0
        for language, title, text in blocks(page):
            if language == "bash":
                for line in text.splitlines():
                    self.run(line)
                    ran += 1
            elif title.startswith("output of "):
                assert self.printed[title.removeprefix("output of ")] == text
            elif title:
                (self._folder / title).write_text(self.placed(text))
        return ran
