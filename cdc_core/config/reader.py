"""Reads a connector file's entries one by one and creates the packages' options."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cdc_core.config.catalogue import PACKAGES, TRANSLATED, KnownProperty, find, nearest
from cdc_core.config.references import has_reference, resolve_references
from cdc_core.config.unsupported import JAVA_CLASS, NAMING_LISTS, WITHOUT_EFFECT
from cdc_core.errors import ConfigError
from cdc_core.option import MASK, Property, PropertyStatus, Secret, properties_of
from cdc_core.postgres import LsnFlushMode

# Names whose values are masked although no package declares them secret: Spark's, a producer's, a JDBC driver's.
_TELLTALE = re.compile(
    r"password|passwd|secret|token|credential|jaas|access\.?key|user\.?info|account\.?key|private\.?key", re.I
)


@dataclass(frozen=True, slots=True, repr=False)
class Setting:
    """One entry of the file. ``text`` is as written; ``shown`` is its printable form."""

    name: str
    text: str
    shown: str

    @property
    def shown_name(self) -> str:
        """The printable name: a hash's salt is a secret in the name."""
        return masked_salt(self.name)

    def __repr__(self) -> str:
        return f"Setting({self.shown_name}={self.shown})"


def shown(name: str, text: str, declared: Property | None) -> str:
    """Return a value's printable form: a reference as it is written, a secret masked."""
    if has_reference(text) and not re.sub(r"\$\{[^{}]*\}", "", text).strip():
        return text
    if text and ((declared is not None and declared.secret) or _TELLTALE.search(name)):
        return MASK
    return text


def masked_salt(name: str) -> str:
    """Return a property's name with any salt in it masked."""
    return re.sub(r"(\.with\.salt\.).+", rf"\g<1>{MASK}", name)


class PropertyReader:
    """Collects entries, then returns options, problems (which are errors) and warnings (which are not)."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.given: dict[str, str] = {}
        self.problems: list[str] = []
        self._found: dict[str, KnownProperty] = {}
        self._repeated: list[str] = []

    def take(self, name: str, text: str) -> None:
        """Add one entry. It replaces an earlier one with the same name, as in Java's Properties and JSON."""
        name = name.strip()
        if name in self.given:
            self._repeated.append(name)
            del self.given[name]
        self.given[name] = text

    def packages(self) -> dict[str, Any]:
        """Return attribute of ConnectorConfig → options, with defaults for entries that are missing or invalid."""
        values: dict[str, dict[str, Any]] = {package: {} for package in PACKAGES}
        headed = self._headed_names()
        for name, text in self.given.items():
            if name in TRANSLATED:
                continue
            known = find(name)
            if known is None:
                if not name.startswith(headed):
                    self.problems.append(_unknown(name))
                continue
            self._found[name] = known
            if known.property.status is PropertyStatus.REFUSED:
                self.problems.append(f"{name} is refused, because {known.property.reason}.")
            elif "\0" in text:
                self.problems.append(f"{masked_salt(name)} holds a NUL character, which no value has.")
            elif known.package and (text.strip() or known.property.pattern):
                self._keep(values[known.package], name, text, known)
            elif text.strip() and known.property.parse is not str:
                self._parsed(name, text, known)
        self._translate(values)
        options = {package: options(**values[package]) for package, (_, options) in PACKAGES.items()}
        self._require()
        return options

    def settings(self) -> tuple[Setting, ...]:
        """Return the entries in the file's order."""
        return tuple(
            Setting(name, text, shown(name, text, self._found[name].property if name in self._found else None))
            for name, text in self.given.items()
        )

    def warnings(self) -> list[str]:
        """Return one line per fact: older names, names set twice, and properties without effect, by reason."""
        lines = [f"{name} is set twice; the last value is used." for name in dict.fromkeys(self._repeated)]
        bundles: dict[tuple[PropertyStatus, str], list[str]] = {}
        for name, known in self._found.items():
            if known.alias:
                lines.append(self._alias_line(name, known.property.name))
            if known.property.status in (PropertyStatus.IGNORED, PropertyStatus.NOT_YET):
                bundles.setdefault((known.property.status, known.property.reason), []).append(name)
        headed = self._headed_names()
        for name in self.given:
            if name not in self._found and name.startswith(headed):
                bundles.setdefault((PropertyStatus.IGNORED, JAVA_CLASS), []).append(name)
        for (status, reason), names in bundles.items():
            listed = ", ".join(names)
            if status is PropertyStatus.IGNORED and reason in WITHOUT_EFFECT:
                continue
            if status is PropertyStatus.IGNORED:
                lines.append(f"Ignored, because {reason}: {listed}.")
            else:
                lines.append(f"Not supported yet ({reason}): {listed}.")
        for old, new in TRANSLATED.items():
            if old in self.given:
                lines.append(f"{old} is a property of Debezium 1.x; it is translated to {new} unless {new} is set.")
        return lines

    def raise_for(self, problems: Iterable[str]) -> None:
        """Raise ConfigError with all of them, if there are any."""
        found = list(dict.fromkeys(problems))
        if len(found) == 1:
            raise ConfigError(f"{self.source}: {found[0]}")
        if found:
            raise ConfigError(f"{self.source} has {len(found)} problems:\n" + "\n".join(f"- {one}" for one in found))

    def _keep(self, values: dict[str, Any], name: str, text: str, known: KnownProperty) -> None:
        if known.alias and known.property.name in self.given:
            return
        declared = known.property
        if declared.secret:
            values[known.field] = Secret(text, resolve_references)
            return
        value = self._parsed(name, text, known)
        if value is None:
            return
        if declared.pattern:
            values[known.field] = (*values.get(known.field, ()), (*known.groups, value))
        else:
            values[known.field] = value

    def _parsed(self, name: str, text: str, found: KnownProperty) -> Any:
        """Return the value; None, and a problem, if it is not valid."""
        try:
            return found.property.parse(resolve_references(text).strip())
        except ValueError as error:
            self.problems.append(f"{masked_salt(name)} is {_quoted(name, text, found.property)}: expected {error}.")
        except ConfigError as error:
            self.problems.append(f"{masked_salt(name)}: {error}")
        return None

    def _translate(self, values: dict[str, dict[str, Any]]) -> None:
        if values["postgres"].get("flush_lsn_source") is False and "lsn.flush.mode" not in self.given:
            values["postgres"]["lsn_flush_mode"] = LsnFlushMode.MANUAL
        mode = self.given.get("truncate.handling.mode")
        if mode is None:
            return
        if mode.strip().lower() not in ("skip", "include"):
            self.problems.append(f"truncate.handling.mode is {mode!r}: expected one of skip, include.")
        elif "skipped.operations" not in self.given:
            values["selection"]["skipped_operations"] = ("t",) if mode.strip().lower() == "skip" else ()

    def _require(self) -> None:
        for package, (_, options) in PACKAGES.items():
            for field, declared in properties_of(options).items():
                given = any(
                    (found.package, found.field) == (package, field) and self.given[name].strip()
                    for name, found in self._found.items()
                )
                if declared.required and not given:
                    self.problems.append(f"{declared.name} is missing: {declared.doc}")

    def _alias_line(self, name: str, current: str) -> str:
        if current in self.given:
            return f"{name} is ignored, because {current}, which replaced it, is set too."
        return f"{name} is the older name of {current}."

    def _headed_names(self) -> tuple[str, ...]:
        names = [part.strip() for head in NAMING_LISTS for part in self.given.get(head, "").split(",")]
        return tuple(f"{name}." for name in names if name)


def _unknown(name: str) -> str:
    close = nearest(name)
    hint = f" Did you mean {close}?" if close else ""
    return f"{masked_salt(name)} is not a property of the connector.{hint}"


def _quoted(name: str, text: str, declared: Property) -> str:
    value = shown(name, text, declared)
    return value if value == MASK else repr(value.strip())
