"""The result of a comparison: for each table whether it is equal, and the keys of the rows that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_core.lake import ChangelogFound, Differences, DifferentRows, KeyList, State, Target
from cdc_core.lsn import Lsn
from cdc_core.schema import Key, TableId


@dataclass(frozen=True, slots=True)
class Unrepaired:
    """A key whose row a repair could not make equal, and why."""

    key: Key
    reason: str


@dataclass(frozen=True, slots=True)
class TableResult:
    """The result of one table. ``rows`` is the number of the source's rows that were compared, None if it was left out.

    ``reason``: why it was left out, else "". ``columns_left_out`` were not compared. ``repaired``: the number of
    rows that a repair made equal; then ``found`` are the other differences. ``bytes_read`` and ``seconds`` are the cost
    at the source. ``is_error``: it was left out because it could not be read, not because of its kind.
    ``changelog``: the result of the check of its changelog, None if that was not checked.
    """

    table: TableId
    state: State
    rows: int | None = None
    reason: str = ""
    found: Differences = field(default_factory=Differences)
    columns_left_out: tuple[str, ...] = ()
    repaired: int = 0
    unrepaired: tuple[Unrepaired, ...] = ()
    bytes_read: int = 0
    seconds: float = 0.0
    lake_version: int | None = None
    is_error: bool = False
    changelog: ChangelogFound | None = None

    def to_plain(self) -> dict[str, Any]:
        """For JSON. Lists of keys are cut at the limit of the comparison; ``counts`` are complete."""
        differences = self.found
        plain: dict[str, Any] = {
            "state": self.state.value,
            "reason": self.reason or None,
            "rows": self.rows,
            "missing": [list(key) for key in differences.missing.keys],
            "extra": [list(key) for key in differences.extra.keys],
            "changed": [list(key) for key in differences.changed.keys],
            "counts": {
                "missing": differences.missing.count,
                "extra": differences.extra.count,
                "changed": differences.changed.count,
                "quarantined": differences.quarantined.count,
                "undecided": differences.undecided.count,
            },
            "quarantined": [list(key) for key in differences.quarantined.keys],
            "undecided": [list(key) for key in differences.undecided.keys],
            "columns_left_out": list(self.columns_left_out),
            "repaired": self.repaired,
            "unrepaired": [{"key": list(row.key), "reason": row.reason} for row in self.unrepaired],
            "bytes_read": self.bytes_read,
            "seconds": round(self.seconds, 3),
            "lake_version": self.lake_version,
            "is_error": self.is_error,
            "changelog": None if self.changelog is None else self.changelog.to_plain(),
        }
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> TableResult:
        """Return a result from ``to_plain`` with the field ``name``: schema and table."""

        def keys(kind: str) -> KeyList:
            return KeyList(plain["counts"][kind], tuple(tuple(key) for key in plain[kind]))

        return cls(
            TableId(*plain["name"]),
            State(plain["state"]),
            plain["rows"],
            plain["reason"] or "",
            Differences(*map(keys, ("missing", "extra", "changed", "quarantined", "undecided"))),
            tuple(plain["columns_left_out"]),
            plain["repaired"],
            tuple(Unrepaired(tuple(row["key"]), row["reason"]) for row in plain["unrepaired"]),
            plain["bytes_read"],
            plain["seconds"],
            plain["lake_version"],
            plain["is_error"],
            ChangelogFound.from_plain(plain["changelog"]),
        )


def result_of(target: Target, judged: DifferentRows, seconds: float) -> TableResult:
    """Return the result of a table that was compared."""
    return TableResult(
        target.table.id,
        judged.found.state,
        judged.rows,
        found=judged.found,
        columns_left_out=target.left_out,
        bytes_read=judged.octets,
        seconds=seconds,
        lake_version=target.lake_version,
    )


def left_out(table: TableId, reason: str, *, is_error: bool = False) -> TableResult:
    """Return the result of a table that was not compared."""
    return TableResult(table, State.LEFT_OUT, reason=reason, is_error=is_error)


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """The results of one comparison, all of the source at ``lsn``."""

    lsn: Lsn
    tables: tuple[TableResult, ...] = field(default_factory=tuple)

    @property
    def is_equal(self) -> bool:
        """Whether no table and no changelog has a difference."""
        whole = (each.changelog is None or each.changelog.is_whole for each in self.tables)
        return all(whole) and all(each.state is not State.DIFFERENT for each in self.tables)

    @property
    def has_errors(self) -> bool:
        """Whether a table could not be read."""
        return any(each.is_error for each in self.tables)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"lsn": str(self.lsn), "tables": {str(each.table): each.to_plain() for each in self.tables}}
