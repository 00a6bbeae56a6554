"""Maintenance of one Delta table that a round does not wait for, in a Spark task during rounds.

Rounds continue meanwhile, also with the same table: a pass carries over what they mark (``lake/maintenance/moving``),
and a round repeats its commit if a pass was committed first. A pass changes no data, so it needs no position, may be
left out or repeated, and may outlast its run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cdc_core import failpoints
from cdc_core.errors import CdcError
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.opened import opened_to_commit
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.index.key_positions import positions_in
from cdc_core.lake.maintenance.compaction import maintain_behind
from cdc_core.lake.rows.row_keys import KeyColumns

_log = logging.getLogger(__name__)

# Limit of indexes that one task makes; the next task continues.
_INDEX_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class UpkeepOrder:
    """What to do with the Delta table at ``path``, of which ``key`` are the columns of its key; none without one.

    ``indexes``: make the indexes of keys that its files lack; else one pass that moves rows to new files.
    """

    path: str
    key: tuple[str, ...] = ()
    indexes: bool = False


@dataclass(frozen=True, slots=True)
class UpkeepDone:
    """The seconds that a task took, and whether the same order has more to do."""

    seconds: float
    has_more: bool


@dataclass(frozen=True, slots=True)
class UpkeepTask:
    """Processes an order; picklable. ``index``: the folder for indexes of keys on each machine, and its bound."""

    run: str
    index: str
    index_max_bytes: int
    armed: failpoints.Armed | None = field(default_factory=failpoints.armed)

    def __call__(self, order: UpkeepOrder) -> UpkeepDone:
        """Do a part of the work; what prevents it is logged, and found again by a round where it matters."""
        failpoints.adopt(self.armed)
        began, has_more = time.monotonic(), False
        try:
            table = opened_to_commit(self.run, order.path)
            if table is not None:
                has_more = self._indexed(table, order, table.files) if order.indexes else self._moved(table, order)
        except CdcError as error:
            _log.warning("Maintenance of %s during the stream was skipped: %s", order.path, error)
        return UpkeepDone(time.monotonic() - began, has_more)

    def _moved(self, table: DeltaTable, order: UpkeepOrder) -> bool:
        """Make one pass; returns whether another is due. New files get their index before a round needs it."""
        before = {file.path for file in table.files}
        has_more = maintain_behind(table, order.key)
        if table.marks_rows:
            self._indexed(table, order, [file for file in table.files if file.path not in before])
        return has_more

    def _indexed(self, table: DeltaTable, order: UpkeepOrder, files: Sequence[DataFile]) -> bool:
        """Make missing indexes of files for a bounded time; returns whether some are missing still."""
        if not self.index or not order.key:
            return False
        positions, columns = positions_in(self.index, self.index_max_bytes), KeyColumns.of(order.key, table.schema)
        return not positions.ready(table, [file for file in files if not file.is_history], columns, _INDEX_SECONDS)
