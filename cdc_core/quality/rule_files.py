"""Reads a folder of rules: short SQL rules as YAML, and the suites of a Great Expectations project (``suites``).

    <folder>/<schema>.<table>.yaml    rules and limits of that table
    <folder>/<anything>.yaml          with ``tables:``, patterns of the tables to which it applies
    <folder>/gx                       the project

All problems of a file are detected when it is read, and reported with their position in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from cdc_core.errors import ConfigError
from cdc_core.quality.options import Limits
from cdc_core.quality.rules import Severity
from cdc_core.quality.suites import SUITES, Suite, read_suite, suite_files
from cdc_core.schema import TableId
from cdc_core.selection import compile_pattern, matches_table

_SUFFIXES = (".yaml", ".yml")
_TOP = {"tables", "limits", "rules"}
_RULE = {"name", "condition", "severity", "tolerance", "description"}
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_TABLE_FILE = re.compile(r"([^.]+)\.(.+)")


@dataclass(frozen=True, slots=True)
class FileRule:
    """One rule. ``condition`` is DuckDB SQL over the new image's columns; ``place`` is its position in the file."""

    name: str
    condition: str
    place: str
    severity: Severity = Severity.ERROR
    tolerated_rows: int = 0
    tolerated_share: float = 0.0
    description: str = ""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """One YAML file. ``tables`` are regexes of schema.table, as in the connector file's lists."""

    path: str
    tables: tuple[str, ...]
    rules: tuple[FileRule, ...] = ()
    share: float | None = None
    rows: int | None = None

    def is_for(self, table: TableId) -> bool:
        """Whether the file applies to the table."""
        return matches_table(self.tables, table)


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """All files of a folder, ordered by name, and its suites."""

    files: tuple[RuleFile, ...] = ()
    suites: tuple[Suite, ...] = ()

    def rules(self, table: TableId) -> tuple[FileRule, ...]:
        """Return the rules of one table; of several with the same name the last is used."""
        by_name = {rule.name: rule for file in self.files if file.is_for(table) for rule in file.rules}
        return tuple(by_name.values())

    def limits(self, table: TableId, default: Limits) -> Limits:
        """Return the table's limits; values missing in the files are taken from ``default``."""
        share, rows, name = default.share, default.rows, default.share_name
        for file in self.files:
            if file.is_for(table):
                if file.share is not None:
                    share, name = file.share, f"limits.share of {Path(file.path).name}"
                rows = rows if file.rows is None else file.rows
        return Limits(share, rows, name)

    def without_plain_suites(self) -> RuleFiles:
        """Drop suites that only repeat the rules of the catalogue: tasks receive the others."""
        return replace(self, suites=tuple(suite for suite in self.suites if suite.expectations or suite.edits))

    def suite(self, table: TableId) -> Suite:
        """Return the table's suite, an empty one if it has none."""
        return next((suite for suite in self.suites if suite.name == str(table)), Suite(str(table)))


def read_rule_files(folder: str) -> RuleFiles:
    """Read a folder of rule files. Raises ConfigError with every problem."""
    place = Path(folder)
    if not place.is_dir():
        raise ConfigError(
            f"wal2lake.quality.rules.path: {folder} is not a folder.", "Create it, or remove the property."
        )
    files, problems = list[RuleFile](), list[str]()
    for path in sorted(file for file in place.iterdir() if file.suffix.lower() in (*_SUFFIXES, ".json")):
        if path.suffix.lower() == ".json":
            suite_path = f"{SUITES}/{path.stem.replace('.', '/')}.json"
            problems.append(f"{path.name}: a suite belongs to the Great Expectations project, as {suite_path}.")
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path.name} cannot be read ({type(error).__name__}).")
            continue
        reader = _RuleReader(path)
        rule_file = reader.rules(text)
        problems += reader.problems
        files += [] if rule_file is None else [rule_file]
    suites = _suites(place, problems)
    if problems:
        raise ConfigError(f"The rule files in {folder} are not valid: {' '.join(problems)}", "Correct the named files.")
    return RuleFiles(tuple(files), suites)


def _suites(folder: Path, problems: list[str]) -> tuple[Suite, ...]:
    suites, places = list[Suite](), dict[str, str]()
    for path in suite_files(folder):
        place = path.relative_to(folder).as_posix()
        suite = read_suite(path, place, problems)
        if suite is None:
            continue
        if suite.name in places:
            problems.append(f"{place}: its name is {suite.name!r}, like that of {places[suite.name]}.")
        places[suite.name] = place
        suites.append(suite)
    return tuple(suites)


class _RuleReader:
    """Reads one file and collects its problems."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.problems: list[str] = []

    def rules(self, text: str) -> RuleFile | None:
        """Read a file of SQL rules; None if it is invalid."""
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            self._wrong(None if mark is None else mark.line + 1, f"no YAML ({getattr(error, 'problem', None)})")
            return None
        if node is None:
            return RuleFile(str(self._path), self._own_table())
        top = self._mapping(node, _TOP, "a mapping with rules, tables or limits")
        tables = self._tables(top.get("tables"))
        share, rows = self._limits(top.get("limits"))
        rules: dict[str, FileRule] = {}
        for entry in self._items(top.get("rules"), "a list of rules"):
            rule = self._rule(entry)
            if rule is not None and rule.name in rules:
                self._wrong(_line(entry), f"a second rule named {rule.name}")
            elif rule is not None:
                rules[rule.name] = rule
        return RuleFile(str(self._path), tables, tuple(rules.values()), share, rows)

    def _rule(self, node: yaml.Node) -> FileRule | None:
        fields = self._mapping(node, _RULE, "a rule with name and condition")
        name, condition = self._text(fields.get("name")), self._text(fields.get("condition"))
        if not name or not _NAME.fullmatch(name):
            self._wrong(_line(node), "a rule without a name of letters, digits, _ . and -")
            return None
        if not condition:
            self._wrong(_line(node), f"rule {name} has no condition")
            return None
        severity = self._text(fields.get("severity")) or "error"
        if severity not in ("error", "warn"):
            self._wrong(_line(fields["severity"]), f"severity of rule {name} is neither error nor warn")
            severity = "error"
        rows, share = self._tolerance(fields.get("tolerance"), name)
        place = f"{self._path.name}, line {_line(fields['condition'])}"
        return FileRule(name, condition, place, Severity(severity), rows, share, self._text(fields.get("description")))

    def _tolerance(self, node: yaml.Node | None, name: str) -> tuple[int, float]:
        text = self._text(node)
        if not text:
            return 0, 0.0
        match = re.fullmatch(r"(\d+)|(0?\.\d+|0\.\d*|1\.0*)|(\d+(?:\.\d+)?)\s*%", text)
        share = None if match is None or match[1] else float(match[2]) if match[2] else float(match[3]) / 100
        if match is None or (share is not None and share > 1):
            self._wrong(_line(node), f"tolerance of rule {name} is no number of rows, no share (0.01), no percentage")
            return 0, 0.0
        return (int(match[1]), 0.0) if share is None else (0, share)

    def _limits(self, node: yaml.Node | None) -> tuple[float | None, int | None]:
        if node is None:
            return None, None
        fields = self._mapping(node, {"share", "rows"}, "limits with share or rows")
        share, rows = self._text(fields.get("share")), self._text(fields.get("rows"))
        if share and not re.fullmatch(r"0|1|0?\.\d+|0\.\d*|1\.0*", share):
            self._wrong(_line(fields["share"]), "limits.share is not a number from 0 to 1")
            share = ""
        if rows and not rows.isdigit():
            self._wrong(_line(fields["rows"]), "limits.rows is not a whole number")
            rows = ""
        return float(share) if share else None, int(rows) if rows else None

    def _tables(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None:
            return self._own_table()
        patterns = []
        for entry in self._items(node, "a list of patterns"):
            pattern = self._text(entry)
            try:
                compile_pattern(pattern)
            except ValueError as error:
                self._wrong(_line(entry), f"a pattern in tables is no regular expression that is supported ({error})")
                continue
            patterns.append(pattern)
        return tuple(patterns)

    def _own_table(self) -> tuple[str, ...]:
        match = _TABLE_FILE.fullmatch(self._path.stem)
        if match is None:
            self._wrong(None, "a name other than schema.table, and no tables: that it is for")
            return ()
        return (f"(?-i){re.escape(self._path.stem)}",)  # one table, not those that differ in case

    def _mapping(self, node: yaml.Node, known: set[str], shape: str) -> Mapping[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._wrong(_line(node), f"something else than {shape}")
            return {}
        nodes: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.value not in known:
                self._wrong(_line(key), f"{key.value} is not known; known are {', '.join(sorted(known))}")
            else:
                nodes[key.value] = value
        return nodes

    def _items(self, node: yaml.Node | None, shape: str) -> Iterator[yaml.Node]:
        if node is not None and not isinstance(node, yaml.SequenceNode):
            self._wrong(_line(node), f"something else than {shape}")
        yield from node.value if isinstance(node, yaml.SequenceNode) else ()

    def _text(self, node: yaml.Node | None) -> str:
        if node is not None and not isinstance(node, yaml.ScalarNode):
            self._wrong(_line(node), "a list or mapping where one value belongs")
            return ""
        return "" if node is None else str(node.value).strip()

    def _wrong(self, line: int | None, what: str) -> None:
        self.problems.append(f"{self._path.name}{'' if line is None else f', line {line}'}: {what}.")


def _line(node: yaml.Node | None) -> int:
    return 0 if node is None else int(node.start_mark.line) + 1
