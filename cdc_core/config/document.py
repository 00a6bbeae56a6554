"""Creates docs/configuration.md from the declarations."""

from __future__ import annotations

import re

from cdc_core.config.catalogue import TRANSLATED, declared_by_package
from cdc_core.config.explanation import as_text
from cdc_core.config.reach import reaches
from cdc_core.option import Property, PropertyStatus

_HEAD = """# Configuration

wal2lake reads the connector file of Debezium's PostgreSQL connector, unchanged: `.properties` or JSON
(`{"name": …, "config": {…}}`, or the properties alone). Its own properties begin with `wal2lake.`.

- An unknown property is refused, with the most similar known name.
- A value may be a reference: `${env:NAME}`, `${file:PATH}` (the file's text), `${file:PATH:KEY}` (a property of that
  file). The referenced value is never printed; passwords are resolved only when they are used.
- An older name is accepted with a warning.
- Lists of names hold regular expressions in Java's syntax, separated by commas (`\\,` is a comma inside one, also in
  `{1\\,3}`). Each must match the whole name, regardless of the case of ASCII letters. An expression matches what it
  matches in Java 17, classes with unions and intersections included; general categories (`\\p{Lu}`) are those of
  the Unicode version of the library `regex`. One without an exact equal is refused with the construct and its
  position: the flags `d m u U x`, `\\b \\B \\G \\X \\N{…}`, scripts, blocks, binary and `java…` properties, lookbehind
  without a largest length.
  `wal2lake check` and each start name the expressions that match nothing.
- `--set KEY=VALUE` on any command that takes the file replaces a property for this command, so that another team's
  file need not be copied: `wal2lake run shop.properties --set wal2lake.metrics.port=9404`.
- A property may have an effect on events alone or on the lake alone (column *effect on*). `wal2lake check` and each
  start name the given ones that have none, with the reason.
- `wal2lake check --explain CONFIG` prints each property with its effective value.
- Each property has an anchor of its name: [`configuration.md#slot.name`](#slot.name).

This page is generated from the declarations by `tools/gen_configuration_doc.py`.
"""
_PAGE = re.compile(r"\bdocs/([\w/-]+\.md)")
_STATUS = {
    PropertyStatus.SUPPORTED: "supported",
    PropertyStatus.NOT_YET: "not supported yet",
    PropertyStatus.IGNORED: "ignored",
    PropertyStatus.REFUSED: "refused",
}


def configuration_page() -> str:
    """Return the page as Markdown, with one line end at its end."""
    parts = [_HEAD]
    for title, properties in declared_by_package().items():
        parts.append(f"\n## {title}\n\n")
        steering = any(declared.doc for declared in properties)
        parts.append(_steering_table(properties) if steering else _other_table(properties))
    return "".join(parts)


def _steering_table(properties: tuple[Property, ...]) -> str:
    lines = ["| property | type | default | effect on | description |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {_name(p.name)} | {_kind(p)} | {_default(p)} | {_reach(p)} | {_meaning(p)} |" for p in properties]
    return "\n".join(lines) + "\n"


def _other_table(properties: tuple[Property, ...]) -> str:
    lines = ["| property | status | reason |", "| --- | --- | --- |"]
    lines += [f"| {_name(p.name)} | {_STATUS[p.status]} | {_cell(p.reason)} |" for p in properties]
    lines += [f"| {_name(old)} | translated | sets {new} |" for old, new in TRANSLATED.items()]
    return "\n".join(lines) + "\n"


def _name(name: str) -> str:
    """Return the name as a link to its own row: configuration.md#slot.name leads there, on the site and on GitHub."""
    anchor = name.replace("*", "any")
    return f'<a id="{anchor}"></a>[`{name}`](#{anchor})'


def _kind(declared: Property) -> str:
    if declared.allowed and declared.kind != "boolean":
        return " · ".join(f"`{value}`" for value in declared.allowed)
    return declared.kind


def _reach(declared: Property) -> str:
    return reaches()[declared.name][0].value if declared.status is PropertyStatus.SUPPORTED else "–"


def _default(declared: Property) -> str:
    if declared.required:
        return "required"
    if declared.secret:
        return "–"
    text = as_text(declared.default)
    return f"`{_cell(text)}`" if text else "–"


def _meaning(declared: Property) -> str:
    words = [declared.doc]
    if declared.aliases:
        words.append("Older name: " + ", ".join(f"`{alias}`" for alias in declared.aliases) + ".")
    if declared.status is not PropertyStatus.SUPPORTED:
        words.append(f"**{_STATUS[declared.status].capitalize()}**: {declared.reason}.")
    # A page of the documentation is named with its folder, as it is in the repository.
    return _PAGE.sub(r"[\1](\1)", _cell(" ".join(words)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
