"""Every property with its value, its origin and how it is used: ``wal2lake check --explain``."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import Enum
from typing import Any

from cdc_core.config.catalogue import PACKAGES, TRANSLATED, find
from cdc_core.config.connector import ConnectorConfig
from cdc_core.config.reader import Setting
from cdc_core.config.unsupported import JAVA_CLASS
from cdc_core.option import Property, PropertyStatus, properties_of

_EMPTY = "set to an empty value, so the default applies"


@dataclass(frozen=True, slots=True)
class ExplainRow:
    """One property. ``value`` has secrets masked and references as written; ``default``: the file does not set it.

    ``status`` is a Status's value or ``translated``. ``reason`` is why it is ignored or not supported, or the older
    name that set it; ``text`` is one line for users: the reason if there is one, else the property's description.
    """

    name: str
    value: str
    default: bool
    status: str
    reason: str
    text: str


def explain(config: ConnectorConfig, everything: bool = True) -> tuple[ExplainRow, ...]:
    """Return packages in the order of the data flow, each with its properties; then the file's other entries.

    Without ``everything`` only the file's entries.
    """
    rows: list[ExplainRow] = []
    told: set[str] = set()
    for package, (_, options) in PACKAGES.items():
        for field, declared in properties_of(options).items():
            named = [setting for setting in config.settings if _is_of(setting, package, field)]
            told.update(setting.name for setting in named)
            configured = [setting for setting in named if setting.text.strip() or declared.pattern]
            if declared.pattern:
                rows += [_row(setting.shown_name, setting.shown, declared) for setting in configured]
            elif configured:
                # If a file sets the older name and the present one, the present one is used.
                holding = next((s for s in configured if s.name == declared.name), configured[-1])
                older = "" if holding.name == declared.name else f"set by its older name {holding.name}"
                rows.append(_row(declared.name, holding.shown, declared, older))
            else:
                value = as_text(getattr(getattr(config, package), field))
                row = _row(declared.name, value, declared, _EMPTY if named else "")
                rows.append(dataclasses.replace(row, default=True))
    rows += [_elsewhere(setting) for setting in config.settings if setting.name not in told]
    return tuple(row for row in rows if everything or not row.default or row.reason == _EMPTY)


def as_text(value: Any) -> str:
    """Return a value in the form of a connector file; a secret is masked."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        return ", ".join(as_text(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ":".join(as_text(getattr(value, f.name)) for f in dataclasses.fields(value))
    return str(value.value if isinstance(value, Enum) else value)


def _is_of(setting: Setting, package: str, field: str) -> bool:
    found = find(setting.name)
    return found is not None and (found.package, found.field) == (package, field)


def _row(name: str, value: str, declared: Property, reason: str = "") -> ExplainRow:
    reason = reason or declared.reason
    return ExplainRow(name, value, False, declared.status.value, reason, reason or declared.doc)


def _elsewhere(setting: Setting) -> ExplainRow:
    found = find(setting.name)
    if setting.name in TRANSLATED:
        reason = f"{TRANSLATED[setting.name]} decides"
        return ExplainRow(setting.name, setting.shown, False, "translated", reason, reason)
    if found is None:
        return ExplainRow(setting.name, setting.shown, False, PropertyStatus.IGNORED.value, JAVA_CLASS, JAVA_CLASS)
    return _row(setting.name, setting.shown, found.property)
