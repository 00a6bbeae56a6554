"""Differences as plain values: the keys of rows, and the errors of a changelog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cdc_core.schema import Key


class State(StrEnum):
    """Whether the lake table has exactly the source's rows; left out: not compared, or not to an end."""

    EQUAL = "equal"
    DIFFERENT = "different"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class KeyList:
    """Keys of one kind: their number, and as many of them as are named."""

    count: int = 0
    keys: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Differences:
    """``missing`` from the lake, ``extra`` in the lake only, ``changed`` in both with other values.

    ``quarantined``: rows whose changes wait in quarantine; these are no differences. ``undecided``: rows that a change
    under way has changed without sending all of their columns, so that they could not be compared.
    """

    missing: KeyList = KeyList()
    extra: KeyList = KeyList()
    changed: KeyList = KeyList()
    quarantined: KeyList = KeyList()
    undecided: KeyList = KeyList()

    @property
    def count(self) -> int:
        """The number of rows that differ."""
        return self.missing.count + self.extra.count + self.changed.count

    @property
    def state(self) -> State:
        """The state of a table that has them."""
        return State.DIFFERENT if self.count else State.EQUAL

    def cut(self, limit: int) -> Differences:
        """Return them with at most ``limit`` keys of each kind named."""
        kinds = (self.missing, self.extra, self.changed, self.quarantined, self.undecided)
        return Differences(*(KeyList(kind.count, kind.keys[:limit]) for kind in kinds))


@dataclass(frozen=True, slots=True)
class ChangelogFound:
    """The errors of a changelog of so many ``rows``.

    ``doubled``: how many have a position that another has. ``keys``: those whose row in the lake is not what the
    changes lead to. ``reason``: why the changes were not folded, else "". ``versions``: in a history table the keys
    with versions that overlap, are missing, or are not what the changes lead to; None if they were not looked through.
    ``removed``: the number of oldest versions that are no longer in the lake table.
    """

    rows: int = 0
    doubled: int = 0
    keys: KeyList = KeyList()
    reason: str = ""
    versions: KeyList | None = None
    removed: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong with it, or with the versions."""
        return not (self.doubled or self.keys.count or (self.versions and self.versions.count))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> ChangelogFound | None:
        """The inverse of ``to_plain``."""
        if plain is None:
            return None
        keys = KeyList(plain["count"], tuple(tuple(key) for key in plain["keys"]))
        entry = plain.get("versions")
        versions = None if entry is None else KeyList(entry["count"], tuple(tuple(key) for key in entry["keys"]))
        removed = 0 if entry is None else entry["removed"]
        return cls(plain["rows"], plain["doubled"], keys, plain["reason"] or "", versions, removed)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "state": "equal" if self.is_whole else "different",
            "reason": self.reason or None,
            "rows": self.rows,
            "doubled": self.doubled,
            "count": self.keys.count,
            "keys": [list(key) for key in self.keys.keys],
            "versions": None
            if self.versions is None
            else {
                "count": self.versions.count,
                "keys": [list(key) for key in self.versions.keys],
                "removed": self.removed,
            },
        }
