"""The results of one comparison as they come: in the lake's ``__reconciliations``, and in a file until it has ended.

An interrupted comparison leaves the file: the next one, with ``resume``, does not compare its
tables again.
"""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cdc_core.lake import KeyList, Reconciliation, ReconciliationLog, epoch_of
from cdc_core.lsn import Lsn
from cdc_core.reconcile.reports import TableResult
from cdc_core.schema import TableId

_log = logging.getLogger(__name__)

# Results that are written to the lake in one commit.
_TOGETHER = 25


@dataclass(slots=True)
class Journal:
    """One comparison's results. ``done`` are those of an interrupted one that this one continues."""

    file: Path
    log: ReconciliationLog
    kind: str
    scope: str
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    done: dict[TableId, TableResult] = field(default_factory=dict)
    _noted: list[dict[str, Any]] = field(default_factory=list)
    _rows: list[Reconciliation] = field(default_factory=list)

    @classmethod
    def open(cls, file: Path, log: ReconciliationLog, kind: str, scope: str, *, resume: bool) -> Journal:
        """Begin a comparison, or continue the file's one if it compared the same ``kind`` of part."""
        made = cls(file, log, kind, scope)
        with suppress(OSError, ValueError, KeyError, TypeError):
            plain = json.loads(file.read_text(encoding="utf-8")) if resume else {}
            if plain.get("kind") == kind and plain.get("scope") == scope:
                made.run, made._noted = plain["run"], plain["tables"]
                made.done = {result.table: result for result in map(TableResult.from_plain, plain["tables"])}
                made._take_over(plain.get("waiting", {}))
                _log.info("Continuing a comparison: %d tables were compared before.", len(made.done))
        return made

    def note(self, result: TableResult, lsn: Lsn) -> None:
        """Store one result, in the file and in the lake."""
        self._noted = [each for each in self._noted if each["table"] != str(result.table)]
        self._noted.append({"table": str(result.table), "name": list(result.table), **result.to_plain()})
        self._rows.append(_row(result, lsn, self))
        self._write()
        if len(self._rows) >= _TOGETHER:
            self._flush()
            self._write()

    def _write(self) -> None:
        """Write the file: all results, and the LSNs of those that are not in the lake yet."""
        told: dict[str, Any] = {"kind": self.kind, "scope": self.scope, "run": self.run, "tables": self._noted}
        told["waiting"] = {str(row.table): str(row.lsn) for row in self._rows}
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            beside = self.file.with_suffix(f".{os.getpid()}.tmp")
            beside.write_text(json.dumps(told), encoding="utf-8")
            beside.replace(self.file)
        except OSError as error:
            _log.warning("%s cannot be written (%s): --resume will not find it.", self.file, error.strerror)

    def _take_over(self, waiting: Mapping[str, str]) -> None:
        """Take over the results that the interrupted comparison had not written to the lake; LSNs by table."""
        for table, result in self.done.items():
            if str(table) in waiting:
                self._rows.append(_row(result, Lsn.parse(waiting[str(table)]), self))

    def close(self) -> None:
        """Remove the file: the comparison has ended. Also remove old results from the lake."""
        self._flush()
        with suppress(OSError):
            self.file.unlink(missing_ok=True)
        self.log.expire(datetime.now(UTC))

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        self.log.add(rows)


def _row(result: TableResult, lsn: Lsn, journal: Journal) -> Reconciliation:
    differences = result.found
    kinds = ("missing", "extra", "changed")
    counts = {name: getattr(differences, name).count for name in (*kinds, "quarantined", "undecided")}
    return Reconciliation(
        journal.run,
        journal.kind,
        lsn,
        epoch_of(journal.scope),
        result.table,
        result.state.value,
        result.reason,
        result.rows,
        {**counts, "repaired": result.repaired},
        {name: [list(key) for key in keys.keys] for name, keys in _named(result).items()},
        result.lake_version,
        result.bytes_read,
        result.seconds,
        datetime.now(UTC),
    )


def _named(result: TableResult) -> dict[str, KeyList]:
    """Return the listed keys by kind of difference."""
    found, changelog = result.found, result.changelog
    keys = {"missing": found.missing, "extra": found.extra, "changed": found.changed}
    if changelog is not None and not changelog.is_whole:
        keys |= {"changelog": changelog.keys, "versions": changelog.versions or KeyList()}
    return keys
