"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.errors import LakeError


class FindingSeverity(StrEnum):
    """``ERROR``: the connector cannot run. ``WARNING``: it can, with a limitation that may be unexpected."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """``check`` is its name, ``found`` one sentence, ``remedy`` what to do (empty if ``ok``).

    ``sql`` are the statements of the remedy, complete and quoted; ``remedy`` names who runs them. Of a good finding
    they are those that would have made it so.
    """

    check: str
    ok: bool
    found: str
    remedy: str = ""
    severity: FindingSeverity = FindingSeverity.ERROR
    sql: tuple[str, ...] = ()

    def require(self) -> None:
        """Raise LakeError for a failed check of a place that is to be written."""
        if not self.ok:
            raise LakeError(self.found, self.remedy)

    @property
    def is_error(self) -> bool:
        """Whether it prevents the connector from running if it is not ok."""
        return self.severity is FindingSeverity.ERROR


def good(check: str, found: str, *sql: str) -> Finding:
    """A passed check."""
    return Finding(check, True, found, sql=sql)


def bad(check: str, found: str, remedy: str, *sql: str) -> Finding:
    """A failed check: the connector cannot run."""
    return Finding(check, False, found, remedy, sql=sql)


def doubtful(check: str, found: str, remedy: str, *sql: str) -> Finding:
    """A warning: the connector can run."""
    return Finding(check, False, found, remedy, FindingSeverity.WARNING, sql)
