"""The properties of one transform or predicate, read and checked as Kafka Connect does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from cdc_core.errors import ConfigError
from cdc_core.selection import Pattern, compile_pattern, replacing


class Settings:
    """Properties below ``prefix`` (``transforms.x``). Remembers which were read; ``unread`` returns the others.

    The methods raise ConfigError that names the property. A property without value is not set.
    """

    def __init__(self, prefix: str, values: dict[str, str], known: Iterable[str] = ()) -> None:
        self.prefix = prefix
        self._values = values
        self._read = set(known)

    def unread(self) -> tuple[str, ...]:
        """Return the full names of the properties that nothing has read."""
        return tuple(f"{self.prefix}.{name}" for name in self._values if name not in self._read)

    def below(self, head: str) -> Settings:
        """Return the properties below another name."""
        inner = {
            name.removeprefix(f"{head}."): text for name, text in self._values.items() if name.startswith(f"{head}.")
        }
        self._read |= {f"{head}.{name}" for name in inner}
        return Settings(f"{self.prefix}.{head}", inner)

    def all(self) -> dict[str, str]:
        """Return every property with its text."""
        self._read |= self._values.keys()
        return dict(self._values)

    def name(self, name: str) -> str:
        """Return a property's full name."""
        return f"{self.prefix}.{name}"

    def get(self, name: str) -> str | None:
        """Return a property's text, None if it is absent or empty."""
        self._read.add(name)
        return self._values.get(name) or None

    def exact(self, name: str, default: str) -> str:
        """Return a property's text, which may be empty."""
        self._read.add(name)
        return self._values.get(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a property's text; without a default it is required."""
        found = self.get(name)
        if found is None and default is None:
            raise ConfigError(f"{self.name(name)} is missing.")
        return found if found is not None else default or ""

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean property."""
        found = self.get(name)
        if found is not None and found.strip().lower() not in ("true", "false"):
            raise ConfigError(f"{self.name(name)} is {found!r}: expected true or false.")
        return default if found is None else found.strip().lower() == "true"

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """Return an integer property; without a default it is required."""
        found = self.text(name, None if default is None else str(default))
        if not re.fullmatch(r"\s*[+-]?\d+\s*", found) or int(found) < least:
            raise ConfigError(f"{self.name(name)} is {found!r}: expected a whole number of {least} or more.")
        return int(found)

    def items(self, name: str, *, required: bool = False) -> tuple[str, ...]:
        """Return a property's comma-separated values."""
        found = self.text(name, None if required else "")
        return tuple(part.strip() for part in found.split(",")) if found.strip() else ()

    def choice(self, name: str, allowed: Iterable[str], default: str | None = None) -> str:
        """Return one of the allowed values, regardless of case."""
        found = self.text(name, default).strip()
        by_lower = {one.lower(): one for one in allowed}
        if found.lower() not in by_lower:
            raise ConfigError(f"{self.name(name)} is {found!r}: expected one of {', '.join(by_lower.values())}.")
        return by_lower[found.lower()]

    def regex(self, name: str, default: str | None = None) -> Pattern:
        """Return a Java regular expression, which distinguishes case."""
        found = self.text(name, default)
        try:
            return compile_pattern(found, ignore_case=False)
        except ValueError as error:
            reason = f"is not a regular expression that Java and wal2lake read alike ({error})"
            raise ConfigError(f"{self.name(name)}: {found!r} {reason}.") from None

    def replacement(self, name: str, pattern: Pattern, default: str | None = None) -> Callable[[str], str]:
        """Return a function that replaces a text's first match, as Java's ``Matcher.replaceFirst``."""
        found = self.text(name, default)
        try:
            return replacing(pattern, found)
        except ValueError as error:
            raise ConfigError(f"{self.name(name)} is {found!r}: {error}.") from None
