"""Options of the checks before a merge, and of the handling of failures."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.errors import LimitExceededError
from cdc_core.option import Named, at_least, number_in, option

# A share of fewer changes means little: one of one. So many are taken to have passed where there were fewer.
WINDOW = 1000
_RULE = re.compile(r"\s*([^\s:.]+\.[^\s:]+)\s*:\s*(\S.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UserRule:
    """A row passes if ``predicate`` (DuckDB SQL over ``after.*``) is true or null. ``table`` is schema.table."""

    table: str
    predicate: str


def parse_rule(text: str) -> UserRule:
    """Parse ``schema.table: predicate``."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError("schema.table: a SQL predicate over after.*")
    return UserRule(match[1], match[2].strip())


@dataclass(frozen=True, slots=True)
class RecentChanges:
    """How many of a table's latest changes were checked, and refused, in the rounds before.

    Of more than ``WINDOW`` changes, each counts less the older it is.
    """

    rows: float = 0
    refused: float = 0

    def and_also(self, rows: int, refused: int) -> RecentChanges:
        """Return the counts with those of another slice."""
        weight = min(1.0, WINDOW / max(self.rows + rows, 1))
        return RecentChanges((self.rows + rows) * weight, (self.refused + refused) * weight)


NONE_RECENT = RecentChanges()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits above which a table is paused.

    ``share`` of the table's latest changes that may be refused (0 to 1), as ``share_name`` sets it; ``rows`` in the
    quarantine table (0: no limit).
    """

    share: float = 1.0
    rows: int = 0
    share_name: str = "wal2lake.quality.failure.limit"

    def exceeded(self, recent: RecentChanges, rows: int, refused: int) -> bool:
        """Whether a slice of ``rows`` changes, of which some are refused, exceeds the share."""
        every = max(recent.rows + rows, WINDOW)
        return refused > 0 and recent.refused + refused > self.share * every

    def require_room(self, table: str, waiting: int, before: int = 0) -> None:
        """Raise LimitExceededError if more changes of ``table`` would wait in quarantine than may.

        What waited ``before`` is no reason to stop: a slice that leaves it as it is passes.
        """
        if self.rows and waiting > max(self.rows, before):
            raise LimitExceededError(
                f"{waiting} changes of {table} would be in quarantine, which exceeds its limit of {self.rows} rows.",
                "Correct the source or the rule, or raise limits.rows of its rule file or "
                "wal2lake.quality.quarantine.limit.rows; the changes are kept in the changelog.",
                table,
            )


@dataclass(frozen=True, slots=True)
class QualityOptions:
    """Options of the checks. ``quality_rules`` has one (name, rule) per property."""

    quality_enabled: bool = option(
        "wal2lake.quality.enabled", True, "Whether changes are checked before they are merged."
    )
    quality_failure_limit: float = option(
        "wal2lake.quality.failure.limit",
        1.0,
        "Share (0 to 1) of a table's last 1000 changes, or of a larger batch, that may fail before the table is "
        "paused; 1 for no limit.",
        parse=number_in(0.0, 1.0),
    )
    quality_quarantine_limit_rows: int = option(
        "wal2lake.quality.quarantine.limit.rows",
        # Each round of a table reads all that waits, so a wrong rule on a large table must not fill its quarantine.
        100_000,
        "Number of changes of a table that may be in quarantine before the table is paused; other tables "
        "continue. 0 for no limit.",
        parse=at_least(0),
    )
    quality_rules_path: str = option(
        "wal2lake.quality.rules.path",
        "",
        "Folder of rules: schema.table.yaml with SQL rules, and in gx a Great Expectations project, which wal2lake "
        "quality init makes.",
    )
    quality_docs_path: str = option(
        "wal2lake.quality.docs.path",
        "",
        "Folder in which Great Expectations' data docs are built at the end of a run; empty for none.",
    )
    quality_docs_url: str = option(
        "wal2lake.quality.docs.url",
        "",
        "URL of a web server that serves the data docs; Dagster's checks link to it. Empty: the address of "
        "wal2lake.metrics.port, if that is set.",
    )
    quality_rules: tuple[tuple[str, UserRule], ...] = option(
        "wal2lake.quality.rule.NAME",
        (),
        "A user-defined rule: schema.table: predicate in DuckDB SQL over after.*; rows that fail it are quarantined.",
        parse=parse_rule,
        pattern=r"wal2lake\.quality\.rule\.([A-Za-z0-9_.-]+)",
        names=Named.CAPTURED_TABLE,
    )

    @property
    def limits(self) -> Limits:
        """The limits of a table without limits in a file."""
        return Limits(self.quality_failure_limit, self.quality_quarantine_limit_rows)
