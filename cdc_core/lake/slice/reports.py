"""Reports of a table's quarantine. Loads no library, as the reports of the engine do not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuarantineReport:
    """A table's quarantine after a round: changes in quarantine, and changes that the round replayed or dropped."""

    waiting: int = 0
    replayed: int = 0
    dropped: int = 0


NOTHING_QUARANTINED = QuarantineReport()
