"""A change that finds no row is never nothing: what may legitimately be absent from a lake table, and what follows.

An update or delete of a slice must find the old row in the lake table (``lake/reduce/expected_rows``). These are all
cases in which it does not, and the table is right:

    the change was merged before                   left out of the slice, by its position
    the snapshot in force shows it                 left out of the slice, by its transaction
    the slice itself has written the row           not expected, by the order of the slice's events at the key
    the lake row is of the same or a later         found: the change is superseded (rows of incremental snapshots, of
      position                                     repairs, of replays)
    a delete of wal2lake's own: surplus rows of    not checked: such rows need not exist
      a resumed snapshot; chunks, repairs
    a change of its key is, or was, in quarantine, excused here, by the key; unless it omits values (TOAST) that would
      or a later one of the slice superseded it      have to be taken from the row
    the table does not have all rows by            not checked here (``may_lack_rows``)
      configuration                                that a row gets nulls in place of unchanged values is said

Everything else is a fault, of any cause: the row was removed by another program, a change was lost, or two texts
of one value differ. Nothing of the slice is committed then; the changes stay in the changelog, and the table is re-read
(``engine/round/failures``). So a reader sees the table as it was, never a row with nulls in place of unchanged values;
a crash loses nothing, because the next attempt finds the same.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa

from cdc_core.errors import MissingRowsError
from cdc_core.lake.apply.absent import AbsentRows
from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.opened import opened
from cdc_core.lake.epochs import EpochRows
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.schema.change_columns import empty_changes
from cdc_core.lake.slice.order import Merge
from cdc_core.lake.slice.schema_versions import by_schema_version, projected
from cdc_core.lake.stores.changelog import stream_positions
from cdc_core.lake.stores.quarantine import quarantined_under
from cdc_core.schema import TableId, TableSchema

_log = logging.getLogger(__name__)

_WRITING = frozenset("cu")


def may_lack_rows(table: TableSchema, token: int, skipped: Collection[str], partly_read: Collection[TableId]) -> str:
    """Return why a lake table need not have every row of its source; empty if it must.

    ``token`` is that of the snapshot in force, 0 for none, ``skipped`` the operations that are not captured.
    ``partly_read`` are the tables that snapshots read by a statement of the user's.
    """
    marks = table.fingerprint.publication if table.fingerprint is not None else None
    published = set(marks.operations) if marks is not None and marks.entries else _WRITING
    if not token:
        # snapshot.mode=no_data, adopt --events-only, snapshot.include.collection.list, incremental snapshots alone.
        return "no snapshot has filled it"
    if table.id in partly_read:
        return "snapshots read it with a statement of snapshot.select.statement.overrides"
    if _WRITING & set(skipped):
        return "skipped.operations leaves out inserts or updates"
    if _WRITING - published:
        return "the publication leaves out inserts or updates"
    return ""


@dataclass(frozen=True, slots=True)
class Absence:
    """Rows that a part of a slice did not find: ``count`` of them are a fault, the first at commit LSN ``first_lsn``.

    ``nulls``: rows that get nulls in place of unchanged values, where the table need not have all rows.
    """

    count: int = 0
    first_lsn: int = 0
    nulls: int = 0

    def plus(self, other: Absence) -> Absence:
        """Return what two parts of a slice did not find."""
        first = min((absence.first_lsn for absence in (self, other) if absence.count), default=0)
        return Absence(self.count + other.count, first, self.nulls + other.nulls)


NONE_ABSENT = Absence()


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a slice must find in its lake table. ``run``, ``scope`` and ``paths`` as in ``SliceTask``."""

    run: str
    scope: str
    paths: LakePaths
    skipped: tuple[str, ...]
    partly_read: frozenset[TableId]

    def absence(
        self, merge: Merge, schema: pa.Schema, absent: AbsentRows | None, left_out: pa.Table | None = None
    ) -> Absence:
        """Return what the absence of rows means. ``schema`` is the lake table's.

        ``left_out`` are change rows of the slice that are not applied: refused, waiting, or superseded since.
        """
        if absent is None:
            return NONE_ABSENT
        if self._may_lack_rows(merge):
            kept = absent.keeping()
            return Absence(nulls=0 if kept is None else kept.count)
        left: AbsentRows | None = absent
        for rows in itertools.chain([] if left_out is None else [left_out], self._quarantined(merge)):
            if left is not None and rows.num_rows:
                left = left.besides(conform(rows, empty_changes(schema).schema), schema)
        return NONE_ABSENT if left is None else Absence(left.count, left.first_lsn)

    def require(self, merge: Merge, absences: Sequence[Absence]) -> None:
        """Raise MissingRowsError if rows are absent whose absence is a fault. ``absences``: of each part of a slice."""
        table, every = str(merge.table.id), reduce(Absence.plus, absences, NONE_ABSENT)
        if every.nulls:
            _log.warning(
                "%s: %d rows that the lake table did not have get nulls in place of unchanged values, which the server "
                "does not send (TOAST); %s.",
                *(table, every.nulls, self._may_lack_rows(merge)),
            )
        if every.count:
            raise MissingRowsError(table, every.count, every.first_lsn)

    def _may_lack_rows(self, merge: Merge) -> str:
        return may_lack_rows(merge.table, merge.snapshot.token, self.skipped, self.partly_read)

    def _quarantined(self, merge: Merge) -> Iterator[pa.Table]:
        """Yield the change rows that are, or were, in quarantine since the snapshot in force, some megabytes at a time.

        Those that the changelog no longer has are left out.
        """
        table = merge.table.id
        quarantine = opened(self.run, self.paths.quarantine(table))
        changelog = opened(self.run, self.paths.changelog(table))
        if quarantine is None or changelog is None:
            return
        places = quarantined_under(quarantine, merge.snapshot.token)
        for rows, _ in stream_positions(EpochRows.of(changelog, self.scope), places):
            for version, changes in by_schema_version(rows):
                if merge.schema.views:
                    yield projected(merge.schema, version, changes)
                elif version in (0, merge.schema.schema_version):  # rows of an earlier one excuse nothing
                    yield changes
