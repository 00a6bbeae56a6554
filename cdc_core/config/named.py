"""Names and patterns of a connector file that match nothing on the server, so that they have no effect.

Which properties hold names is declared with them (``option(names=…)``), so that none is left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_core.config.catalogue import find
from cdc_core.config.connector import ConnectorConfig
from cdc_core.config.reader import Setting
from cdc_core.config.references import has_reference
from cdc_core.observe import FreshnessWindow
from cdc_core.option import Named
from cdc_core.postgres import IdentityRule, PublicationAutocreateMode
from cdc_core.quality import UserRule
from cdc_core.schema import KeyRule, TableId, TableSchema
from cdc_core.selection import TableSelection, compile_pattern, source_type

# Above this, the most similar name is not looked for.
_MANY_NAMES = 5_000
_SIGNALS = "signal.data.collection"
_VIEWS = ("view", "materialized view")


@dataclass(frozen=True, slots=True)
class Database:
    """What names are compared with: every table, relations that are none with their kind, and the captured tables."""

    name: str
    tables: Sequence[TableId]
    others: Mapping[TableId, str]
    captured: Sequence[TableSchema]


@dataclass(frozen=True, slots=True)
class Unmatched:
    """An entry that matches nothing. ``is_error``: ignoring it would capture more than the file selects."""

    found: str
    remedy: str
    is_error: bool = False


def unmatched(config: ConnectorConfig, database: Database) -> list[Unmatched]:
    """Return the entries of the file that match nothing, in its order."""
    candidates = {kind: _Candidates(_names(kind, database)) for kind in Named}
    missing = []
    for setting in config.settings:
        for kind, entry in _entries(config, setting):
            if setting.name == _SIGNALS and any(map(TableSelection(config.selection).is_signal, database.tables)):
                continue
            if not candidates[kind].has(kind, entry, database.name):
                missing.append(_said(config, setting, kind, entry, candidates[kind], database))
    return missing


class _Candidates:
    def __init__(self, names: Iterable[str]) -> None:
        self.names = sorted(set(names))
        self._known = set(self.names)

    def has(self, kind: Named, entry: str, database: str) -> bool:
        if kind in (Named.TABLE, Named.CAPTURED_TABLE):
            try:
                return str(TableId.of_text(entry, database)) in self._known
            except ValueError:
                return False
        matching = compile_pattern(entry).fullmatch
        return any(matching(name) is not None for name in self.names)

    def nearest(self, entry: str) -> str:
        """Return the most similar name, empty if none is similar."""
        if len(self.names) > _MANY_NAMES:
            return ""
        by_lower = {name.lower(): name for name in self.names}
        plain = entry.replace("\\", "").replace('"', "").lower()
        # A name of another database, or without its schema, is most like one that ends as it does.
        near = [name for name in by_lower if name and (plain.endswith(f".{name}") or name.endswith(f".{plain}"))]
        near = near or difflib.get_close_matches(plain, by_lower, n=1)
        return by_lower[near[0]] if near else ""


def _names(kind: Named, database: Database) -> Iterator[str]:
    match kind:
        case Named.SCHEMAS:
            yield from (table.schema for table in database.tables)
        case Named.TABLES | Named.TABLE:
            yield from map(str, database.tables)
            # A foreign or UNLOGGED table is reported where it is selected.
            yield from (str(name) for name, what in database.others.items() if what not in _VIEWS)
        case Named.CAPTURED | Named.CAPTURED_TABLE:
            yield from (str(table.id) for table in database.captured)
        case Named.COLUMNS:
            for table in database.captured:
                yield from (f"{table.id}.{column.name}" for column in table.columns)
        case Named.TYPES:
            for table in database.captured:
                for column in table.columns:
                    yield from (f"{table.id}.{source_type(column, read).name}" for read in (False, True))


def _entries(config: ConnectorConfig, setting: Setting) -> Iterator[tuple[Named, str]]:
    """Yield the names and patterns of one setting; none where another setting of the same property is in force."""
    declared = find(setting.name)
    if declared is None or not declared.package or declared.property.names in (Named.NOTHING, Named.LATER):
        return
    if declared.alias and any(other.name == declared.property.name for other in config.settings):
        return
    value = getattr(getattr(config, declared.package), declared.field)
    kind = declared.property.names
    if not declared.property.pattern:
        yield from ((kind, entry) for entry in _texts(value))
    else:
        for entry in value:
            if entry[:-1] == declared.groups:
                yield from ((kind, text) for text in _texts(entry[-1]))


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from [value] if value else []
        case KeyRule(table, columns):
            yield from (f"{table}.{column}" for column in columns)
        case IdentityRule(table) | UserRule(table):
            yield table
        case FreshnessWindow(pattern):
            yield pattern
        case tuple():
            for entry in value:
                yield from _texts(entry)


def _said(
    config: ConnectorConfig, setting: Setting, kind: Named, entry: str, candidates: _Candidates, database: Database
) -> Unmatched:
    # The resolved value of a reference is not printed.
    name, shown = setting.shown_name, setting.text if has_reference(setting.text) else entry
    near = candidates.nearest(entry)
    remedy = f"Did you mean {near}?" if near else "Correct or remove it."
    if name == _SIGNALS:
        return Unmatched(f"{name} names {shown}, which does not exist: no signal can arrive in it.", remedy)
    if name == "snapshot.select.statement.overrides":
        message = (
            f"{name} names {shown}, which does not exist: every row of the table that is meant would be read. Names "
            "are compared exactly, as schema.table."
        )
        return Unmatched(message, remedy, is_error=True)
    if kind is Named.TABLES and (what := _view(entry, database)):
        message = f"{name} names {shown}, which is a {what}: the WAL has no changes of views."
        return Unmatched(message, "Name the tables of the view instead.")
    if name == "table.include.list":
        later = "a table that is created later is captured if the publication has it"
        if config.postgres.publication_autocreate_mode is PublicationAutocreateMode.FILTERED:
            later = "a table that is created later is added to the publication, and captured, at the next start"
        return Unmatched(f"The expression {shown} of {name} matches no table yet: {later}.", remedy)
    whole = "" if near else " It must match the entire name, of a column schema.table.column."
    if kind is Named.CAPTURED_TABLE:
        return Unmatched(f"{name} is for {shown}, which is not a captured table.", remedy)
    return Unmatched(f"The expression {shown} of {name} matches no {kind}.", f"{remedy}{whole}")


def _view(entry: str, database: Database) -> str:
    matching = compile_pattern(entry).fullmatch
    return next((what for name, what in database.others.items() if what in _VIEWS and matching(str(name))), "")
