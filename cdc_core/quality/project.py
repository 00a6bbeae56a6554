"""The Great Expectations project of a folder of rules: made, and its suites brought up to date with the catalogue.

An expectation that was not edited follows the catalogue; what a user has edited, deleted or added stays (``suites``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdc_core.quality.rules import Origin, Rule
from cdc_core.quality.suites import MARK, SUITES, generated_names, is_edited, mark_of
from cdc_core.schema import TableId

_KEY = "key_not_null:"
_NOT_NULL = "expect_column_values_to_not_be_null"


@dataclass(frozen=True, slots=True)
class SuiteReport:
    """The changes of a table's suite: generated expectations that are new, changed, removed or edited.

    ``edited`` ones, which include deleted ones, are left as the user made them. ``own`` counts the user's. ``problem``
    is why the suite was skipped, empty if it was not.
    """

    table: TableId
    path: Path
    added: int = 0
    changed: int = 0
    removed: int = 0
    edited: int = 0
    own: int = 0
    problem: str = ""


def make_project(folder: Path) -> None:
    """Make the project if the folder has none. Raises OSError, and what the library raises."""
    from cdc_core.quality.great_expectations import library

    folder.mkdir(parents=True, exist_ok=True)
    library().get_context(mode="file", project_root_dir=folder)


def write_suite(folder: Path, table: TableId, rules: Sequence[Rule]) -> SuiteReport:
    """Bring the suite of a table up to date with the generated rules. Raises OSError.

    A suite that is not valid JSON, or that of another table, is not written.
    """
    name = str(table)
    path = folder / SUITES / Path(*name.split(".")).with_suffix(".json") if _is_name(name) else folder / SUITES
    if not _is_name(name):
        return SuiteReport(table, path, problem="a suite's name cannot have / or \\, or an empty part between dots")
    try:
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"name": name, "expectations": []}
    except ValueError as error:
        return SuiteReport(table, path, problem=f"{path} is no JSON ({type(error).__name__})")
    if not isinstance(known, dict) or known.get("name") != name or not isinstance(known.get("expectations"), list):
        return SuiteReport(table, path, problem=f"{path} is not the suite {name}")
    suite, report = _renewed(table, known, {rule.name: made for rule in rules if (made := _entry(rule)) is not None})
    if suite != known or not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        making = path.with_name(path.name + ".new")
        making.write_text(json.dumps(suite, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        making.replace(path)
    return replace(report, path=path)


def _is_name(name: str) -> bool:
    return all(name.split(".")) and "/" not in name and "\\" not in name


def _expectation(rule: Rule) -> tuple[str, dict[str, Any]] | None:
    """The library's expectation on rows for a generated rule; None for rules on the form and order of changes."""
    if rule.origin is not Origin.CATALOGUE:
        return None
    if rule.name.startswith(_KEY):
        return _NOT_NULL, {"column": rule.column}
    return (rule.kind, rule.arguments) if rule.kwargs else None


def _renewed(
    table: TableId, suite: Mapping[str, Any], rules: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, Any], SuiteReport]:
    """Return a suite brought up to date with the entries of rules by name, and its report."""
    generated, kept = generated_names(suite), list[Any]()
    marked, counts = set[str](), Counter[str]()
    for entry in suite["expectations"]:
        name = str(mark_of(entry).get("rule", ""))
        marked.add(name)
        if not name:
            counts["own"] += 1
        elif is_edited(entry):
            counts["edited"] += 1
        elif name not in rules:
            counts["removed"] += 1
            continue
        elif mark_of(entry).get("kwargs") != rules[name]["kwargs"]:
            counts["changed"] += 1
            kept.append({**entry, **rules[name], "severity": entry.get("severity", "critical")})
            continue
        kept.append(entry)
    new = [entry for name, entry in rules.items() if name not in generated and name not in marked]
    kept += new
    meta = {**(suite.get("meta") or {}), MARK: {"generated": sorted(rules)}}
    edited = counts["edited"] + sum(name in rules and name not in marked for name in generated)
    report = SuiteReport(table, Path(), len(new), counts["changed"], counts["removed"], edited, counts["own"])
    return {**suite, "expectations": kept, "meta": meta}, report


def _entry(rule: Rule) -> dict[str, Any] | None:
    """The entry of a rule in a suite, None as ``_expectation``."""
    made = _expectation(rule)
    if made is None:
        return None
    kind, kwargs = made
    return {
        "type": kind,
        "kwargs": kwargs,
        "severity": "critical",
        "description": rule.description,
        "meta": {MARK: {"rule": rule.name, "kwargs": kwargs}},
    }
