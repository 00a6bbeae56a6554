"""What the pages tell a reader to type exists: commands, their options, properties."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from cdc_core.cli.program import cli
from cdc_core.config.catalogue import find

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md"])
_FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_PROPERTY = re.compile(r"wal2lake\.[a-z0-9]+(?:\.[a-z0-9_*]+)+")
# Names of which a page shows the beginning, or that a page calls a module or a file by.
_NO_PROPERTIES = re.compile(r"wal2lake\.(dagster\.ConnectorComponent|git|spark\.|properties$|quality\.rule$)|\*|\.$")


def typed(page: Path) -> list[str]:
    """The calls of wal2lake on a page: lines of its blocks, and what stands between backticks."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in _FENCE.findall(text) for line in block.splitlines()]
    lines += _INLINE.findall(_FENCE.sub("", text))
    found = [re.sub(r"^\s*(\$ |docker run .*? wal2lake (?=wal2lake))?", "", line) for line in lines]
    return [line for line in found if re.match(r"wal2lake [a-z]", line)]


def wrong(line: str) -> list[str]:
    """The names in a call that do not exist."""
    words = shlex.split(re.sub(r"\s+#.*|\s*[>|].*|[()]", "", line).replace("…", ""), posix=True)[1:]
    if words[0] not in cli.commands:
        return [words[0]]
    command = cli.commands[words[0]]
    if isinstance(command, click.Group):
        words = words[1:]
        if not words or words[0] not in command.commands:
            return words[:1]
        command = command.commands[words[0]]
    options = {name for each in command.params if isinstance(each, click.Option) for name in each.opts} | {"--help"}
    return [word for word in words[1:] if word.startswith("-") and word.partition("=")[0] not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_and_option_exists(page: Path) -> None:
    assert {line: wrong(line) for line in typed(page) if wrong(line)} == {}


def test_wrong_ones_would_be_found() -> None:
    assert len({line for page in PAGES for line in typed(page)}) > 40
    assert wrong("wal2lake chekc shop.properties") == ["chekc"]
    assert wrong("wal2lake check shop.properties --squl > a.sql") == ["--squl"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_property_exists(page: Path) -> None:
    names = {name for name in _PROPERTY.findall(page.read_text(encoding="utf-8")) if not _NO_PROPERTIES.search(name)}
    assert [name for name in sorted(names) if find(name) is None] == []
