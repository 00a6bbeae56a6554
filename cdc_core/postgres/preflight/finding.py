"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """``ERROR``: the connector cannot run. ``WARNING``: it can, and something will not be as one may expect."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` is its name, ``found`` one sentence, ``remedy`` what to do (empty where ``ok``)."""

    check: str
    ok: bool
    found: str
    remedy: str = ""
    severity: Severity = Severity.ERROR

    @property
    def is_error(self) -> bool:
        """Whether it keeps the connector from running when it is not ok."""
        return self.severity is Severity.ERROR


def good(check: str, found: str) -> Finding:
    """All is as it must be."""
    return Finding(check, True, found)


def bad(check: str, found: str, remedy: str) -> Finding:
    """The connector cannot run."""
    return Finding(check, False, found, remedy)


def doubtful(check: str, found: str, remedy: str) -> Finding:
    """The connector can run."""
    return Finding(check, False, found, remedy, Severity.WARNING)
