"""What messages tell a user to type exists: commands of wal2lake with their options, properties and their values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from cdc_core.cli.program import cli
from cdc_core.config.catalogue import PACKAGES, find
from cdc_core.option import PropertyStatus, properties_of

ROOT = Path(__file__).parents[2]
SOURCES = ("cdc_core", "pipelines")
# Connector and broker files of the demo, and the name of a session.
NO_MESSAGES = ("cdc_core/demo/", "cdc_core/postgres/rows/chunk_sql.py")
# A placeholder in a text, for which any value may stand.
VALUE = "\N{BULLET}"
# What wal2lake does itself: the words after its name that are no command.
VERBS = {
    *("adds", "alike", "cannot", "decides", "did", "does", "enables", "has", "have", "is", "knows", "may", "publishes"),
    *("read", "reads", "stands", "there", "treats", "uses", "with", "wrote", "writes"),
}
_CALL = re.compile(r"wal2lake (?P<command>[a-z][a-z-]*)(?P<rest>[^;:()]*?)(?=wal2lake [a-z]|[;:()]|\. |\.?$)")
_OPTION = re.compile(r"--[a-z][a-z-]+")
_HEADS = "|".join(
    sorted({one.name.partition(".")[0] for _, made in PACKAGES.values() for one in properties_of(made).values()})
)
_SET = re.compile(rf"(?<![\w./{VALUE}-])(?P<name>(?:{_HEADS})(?:\.\w[\w-]*)+)=(?P<value>[^\s,;)\"'`]+)")
_OWN = re.compile(r"(?<![\w./-])wal2lake(?:\.[a-z][a-z0-9]*){2,}")


def text_of(node: ast.AST) -> str | None:
    """Return the text of an expression, with VALUE for what is known only when it runs; None if it is no text."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or VALUE for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = text_of(node.left), text_of(node.right)
        return None if parts == (None, None) else "".join(part or VALUE for part in parts)
    return None


@cache
def messages() -> list[tuple[str, str]]:
    """Return (place, text) of all texts of the program with a blank, apart from docstrings."""
    return [
        (f"{path.relative_to(ROOT)}:{line}", text)
        for package in SOURCES
        for path in sorted((ROOT / package).rglob("*.py"))
        if not path.relative_to(ROOT).as_posix().startswith(NO_MESSAGES)
        for line, text in _texts(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    parts = {id(part) for node in ast.walk(tree) if text_of(node) for part in ast.walk(node) if part is not node}
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = None if id(node) in parts | docs else text_of(node)
        if isinstance(node, ast.expr) and text and " " in text:
            yield node.lineno, text


def command_of(words: list[str]) -> click.Command | None:
    """Return the command that the first words name, with that of a group."""
    command = cli.commands.get(words[0])
    if isinstance(command, click.Group):
        return command.commands.get(words[1]) if len(words) > 1 else command
    return command


def wrong_calls(text: str) -> list[str]:
    """Return what a text says of commands that is not so."""
    wrong = []
    for call in _CALL.finditer(text):
        words = [call["command"], *re.findall(r"[\w-]+", call["rest"])]
        command = command_of(words)
        if command is None:
            wrong += [] if words[0] in VERBS else [words[0]]
            continue
        known = {name for each in command.params for name in each.opts} | {"--help"}
        wrong += [f"{words[0]} {option}" for option in _OPTION.findall(call["rest"]) if option not in known]
    return wrong


def wrong_settings(text: str) -> list[str]:
    """Return the properties in a text that do not exist, are refused, or do not take the value."""
    wrong = []
    for one in _SET.finditer(text):
        found, value = find(one["name"].replace(VALUE, "x")), one["value"].rstrip(".:")
        if found is None or found.property.status is PropertyStatus.REFUSED:
            wrong.append(one["name"])
        elif VALUE not in value and "%s" not in value and "{" not in value:
            try:
                found.property.parse(value)
            except ValueError:
                wrong.append(f"{one['name']}={value}")
    return wrong + [name for name in _OWN.findall(text) if _is_unknown(name)]


def _is_unknown(name: str) -> bool:
    """Whether no property has the name, or begins with it."""
    found = find(name)
    return found is None and not any(
        one.name.startswith(f"{name}.") for _, made in PACKAGES.values() for one in properties_of(made).values()
    )


def test_every_command_and_option_that_a_message_names_exists() -> None:
    assert {place: wrong for place, text in messages() if (wrong := wrong_calls(text))} == {}


def test_every_property_that_a_message_names_exists_and_takes_the_value() -> None:
    assert {place: wrong for place, text in messages() if (wrong := wrong_settings(text))} == {}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Then run wal2lake resume with public.t.", ["resume"]),
        ("Run wal2lake replay with public.t, or with --accept-every.", ["replay --accept-every"]),
        ("Run wal2lake replay with public.t; wal2lake snapshot --drop reads it.", ["snapshot --drop"]),
        ("Set snapshot.mode=whenneeded.", ["snapshot.mode=whenneeded"]),
        ("Set wal2lake.lake.schemachanges=reread.", ["wal2lake.lake.schemachanges", "wal2lake.lake.schemachanges"]),
        ("Raise wal2lake.quality.failure.limits.", ["wal2lake.quality.failure.limits"]),
        ("Remove wal2lake.streaming.transactions.two.phase=false.", ["wal2lake.streaming.transactions.two.phase"]),
    ],
)
def test_wrong_ones_would_be_found(text: str, wrong: list[str]) -> None:
    assert wrong_calls(text) + wrong_settings(text) == wrong
    assert len([place for place, text in messages() if _CALL.search(text)]) > 80
    assert len([place for place, text in messages() if _SET.search(text)]) > 40
