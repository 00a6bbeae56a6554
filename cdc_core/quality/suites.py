"""Suites of a Great Expectations project: which expectations are generated, and which are the user's.

    <folder>/gx/great_expectations.yml               the project, which the library opens (``quality/project``)
    <folder>/gx/expectations/<schema>/<table>.json   the suite <schema>.<table>

The suite's ``meta`` names the rules that were generated (``{"wal2lake": {"generated": [rule, …]}}``), that of each such
expectation its rule and its kwargs at that time (``{"wal2lake": {"rule": …, "kwargs": {…}}}``). So an edit is known:

    a generated expectation      the rule
    as it was generated          follows the source's catalogue
    with another severity        follows the source's catalogue, with that severity
    with other kwargs            does not apply: the expectation is the user's
    deleted                      does not apply

Every expectation without such a mark is the user's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdc_core.quality.expectations import short_name
from cdc_core.quality.rules import Rule, Severity

SUITES = "gx/expectations"
MARK = "wal2lake"


@dataclass(frozen=True, slots=True)
class FileExpectation:
    """One expectation of a suite: its type, and its kwargs as JSON text; ``place`` is its position in the file."""

    name: str
    kind: str
    kwargs: str
    place: str
    severity: Severity = Severity.ERROR
    description: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite: the user's expectations, and of the generated rules those that are off or have another severity."""

    name: str
    expectations: tuple[FileExpectation, ...] = ()
    off: frozenset[str] = frozenset()
    severities: tuple[tuple[str, Severity], ...] = ()

    @property
    def edits(self) -> tuple[str, ...]:
        """The suite's differences from generated rules, one text each."""
        return (*(f"{name} off" for name in sorted(self.off)), *(f"{name} {level}" for name, level in self.severities))

    def applied(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """Return generated rules as the suite leaves them."""
        severities = dict(self.severities)
        return tuple(
            replace(rule, severity=severities.get(rule.name, rule.severity))
            for rule in rules
            if rule.name not in self.off
        )


def suite_files(folder: Path) -> list[Path]:
    """The files of the suites in a folder's project, by name."""
    root = folder / SUITES
    relative_paths = (path.relative_to(root) for path in root.rglob("*.json"))
    # Notebooks keep copies in hidden folders.
    return sorted(root / path for path in relative_paths if not any(part.startswith(".") for part in path.parts))


def read_suite(path: Path, place: str, problems: list[str]) -> Suite | None:
    """Read a suite; its errors are added to ``problems``. ``place`` is the file's name for users."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{place} cannot be read ({type(error).__name__}).")
        return None
    except json.JSONDecodeError as error:
        problems.append(f"{place}, line {error.lineno}: no JSON ({error.msg}).")
        return None
    listed = raw.get("expectations") if isinstance(raw, dict) else None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        problems.append(f"{place}: no list of expectations, as Great Expectations' own suites have.")
        return None
    name = str(raw.get("name") or place.removeprefix(f"{SUITES}/").removesuffix(".json").replace("/", "."))
    return _suite(name, raw, list(_entries(listed, place, problems)))


@dataclass(frozen=True, slots=True)
class _Entry:
    """One expectation as it is in a file, and the rule for which it was generated, empty for none."""

    expectation: FileExpectation
    rule: str
    is_edited: bool


def _suite(name: str, raw: Mapping[str, Any], entries: list[_Entry]) -> Suite:
    own = tuple(entry.expectation for entry in entries if not entry.rule or entry.is_edited)
    kept = {entry.rule: entry.expectation.severity for entry in entries if entry.rule and not entry.is_edited}
    off = frozenset(generated_names(raw)) - kept.keys()
    others = tuple(sorted((rule, level) for rule, level in kept.items() if level is not Severity.ERROR))
    return Suite(name, own, off, others)


def _entries(listed: Iterable[Mapping[str, Any]], place: str, problems: list[str]) -> Iterator[_Entry]:
    names = dict[str, int]()
    for number, raw in enumerate(listed, 1):
        kind, kwargs = raw.get("type") or raw.get("expectation_type"), raw.get("kwargs", {})
        if not isinstance(kind, str) or not isinstance(kwargs, dict):
            problems.append(f"{place}: expectation {number} has no type, or kwargs that are no object.")
            continue
        name = short_name(kind, kwargs)
        names[name] = names.get(name, 0) + 1
        name = name if names[name] == 1 else f"{name}:{names[name]}"
        severity = Severity.WARN if str(raw.get("severity", "critical")) != "critical" else Severity.ERROR
        text = json.dumps(kwargs, sort_keys=True)
        described = str(raw.get("description") or "")
        made = FileExpectation(name, kind, text, f"{place}, expectation {number}", severity, described)
        yield _Entry(made, str(mark_of(raw).get("rule", "")), is_edited(raw))


def mark_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The mark of a suite, or of one of its expectations; empty without one."""
    meta = entry.get("meta")
    mark = meta.get(MARK) if isinstance(meta, dict) else None
    return mark if isinstance(mark, dict) else {}


def generated_names(suite: Mapping[str, Any]) -> list[str]:
    """The rules for which a suite has, or had, an expectation."""
    names = mark_of(suite).get("generated")
    return [str(name) for name in names] if isinstance(names, list) else []


def is_edited(entry: Mapping[str, Any]) -> bool:
    """Whether a generated expectation has other kwargs than it was generated with."""
    kwargs, made = entry.get("kwargs", {}), mark_of(entry).get("kwargs", {})
    # The library writes 10.0 for 10, and a null for an argument that is not set.
    return bool({name: value for name, value in kwargs.items() if value is not None} != made)
