"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """``ERROR``: the connector cannot run. ``WARNING``: it can, with a limitation that may be unexpected."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` is its name, ``found`` one sentence, ``remedy`` what to do (empty if ``ok``)."""

    check: str
    ok: bool
    found: str
    remedy: str = ""
    severity: Severity = Severity.ERROR

    @property
    def is_error(self) -> bool:
        """Whether it prevents the connector from running if it is not ok."""
        return self.severity is Severity.ERROR


def good(check: str, found: str) -> Finding:
    """A passed check."""
    return Finding(check, True, found)


def bad(check: str, found: str, remedy: str) -> Finding:
    """A failed check: the connector cannot run."""
    return Finding(check, False, found, remedy)


def doubtful(check: str, found: str, remedy: str) -> Finding:
    """A warning: the connector can run."""
    return Finding(check, False, found, remedy, Severity.WARNING)
