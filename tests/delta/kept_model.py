"""What a lake table that keeps deleted rows must hold, told row by row from a snapshot and the change rows after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_OWN = ("__commit_lsn", "__tx_index", "__commit_ts")


@dataclass
class Version:
    """A row between two positions. ``ended`` is None while it is in force."""

    values: dict[str, Any]
    began: tuple[int, int, Any]
    ended: tuple[int, int, Any] | None = None


@dataclass
class KeptModel:
    """Every version of every row of a table with ``key``; ``take`` and ``apply`` in the order of time.

    ``restarts``: a row that a snapshot finds as it was takes the snapshot's position.
    """

    key: tuple[str, ...]
    versions: list[Version] = field(default_factory=list)
    restarts: bool = False

    def __post_init__(self) -> None:
        self._current: dict[Any, Version] = {}
        self._last: dict[Any, Version] = {}

    def take(self, rows: list[dict[str, Any]], at: tuple[int, int, Any]) -> None:
        """Rows of a snapshot: those that are there as they are stay, others begin, and what it does not show ends."""
        seen = set()
        for row in rows:
            values = {name: value for name, value in row.items() if name not in _OWN}
            seen.add(self._key(values))
            held = self._current.get(self._key(values))
            if held is None or held.values != values:
                self._put(values, at)
            elif self.restarts:
                held.began = at
        for key in set(self._current) - seen:
            self._end(key, at)

    def apply(self, change: dict[str, Any]) -> None:
        """One change row."""
        at = (change["__commit_lsn"], change["__tx_index"], change["__commit_ts"])
        before, after = change["before"], change["after"]
        if change["__op"] == "t":
            for key in list(self._current):
                self._end(key, at)
            return
        old = self._key(before or after)
        held = self._current.get(old)
        if change["__op"] == "d" or (change["__op"] == "u" and old != self._key(after)):
            self._end(old, at)
        if after is not None:
            self._put(_filled(after, change["__unchanged"], held), at)

    @property
    def soft(self) -> dict[Any, tuple[dict[str, Any], bool, tuple[int, int]]]:
        """By key the last values, whether the row is gone, and the position that says so."""
        return {
            key: (last.values, last.ended is not None, (last.ended or last.began)[:2])
            for key, last in self._last.items()
        }

    def _put(self, values: dict[str, Any], at: tuple[int, int, Any]) -> None:
        key = self._key(values)
        self._end(key, at)
        made = Version(values, at)
        self.versions.append(made)
        self._current[key] = self._last[key] = made

    def _end(self, key: Any, at: tuple[int, int, Any]) -> None:
        held = self._current.pop(key, None)
        if held is not None:
            held.ended = at

    def _key(self, values: dict[str, Any]) -> Any:
        return tuple(values[name] for name in self.key)


def _filled(after: dict[str, Any], unchanged: list[str], held: Version | None) -> dict[str, Any]:
    """An image with what was not sent taken from the row that it changed."""
    values, texts = dict(after), dict(after.get("__rescued") or {})
    before = {} if held is None else held.values
    for name in unchanged:
        values[name] = before.get(name)
        text = (before.get("__rescued") or {}).get(name)
        if text is not None:
            texts[name] = text
    values["__rescued"] = texts or None
    return values
