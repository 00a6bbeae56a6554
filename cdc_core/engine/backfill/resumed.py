"""What a run resumes of the snapshots that signals have requested, and since when tables are published as they are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from cdc_core.engine.backfill.stored import StoredProgress
from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.lake import ProgressLog, epoch_of
from cdc_core.postgres import Source
from cdc_core.schema import TableSchema, streamed
from cdc_core.snapshot import LakeProgress, UnsentChanges

_log = logging.getLogger(__name__)


def resumed_progress(
    lake: ConnectorLake, source: Source, tables: Sequence[TableSchema]
) -> tuple[StoredProgress, UnsentChanges]:
    """Return the stored progress, and which changes of tables the stream may lack for their chunks.

    It notes since when the tables are published as they are now, and stores that where only incremental snapshots read
    tables: so one that was published in an earlier run does not wait for transactions that began since.
    """
    log = ProgressLog(lake.paths.incremental, lake.options.lake_history_minutes)
    state = _stored(log.read(), epoch_of(lake.scope))
    described = [streamed(table) for table in tables]
    digest = UnsentChanges.published_digest(described)
    if state.published != digest:
        state = replace(state, published=digest, bound=source.next_transaction())
        if not lake.mode.first:
            log.write(state.to_json())
    unsent = UnsentChanges(lake.paths, lake.scope)
    unsent.note(described, state.bound)
    return StoredProgress(log, state), unsent


def _stored(text: str, epoch: int) -> LakeProgress:
    """Return the stored state; the initial one if it is of another epoch, whose tables have all been read since."""
    try:
        state = LakeProgress.from_json(text)
    except ValueError:
        _log.warning("The stored progress of incremental snapshots cannot be read: request the snapshots again.")
        return LakeProgress(epoch=epoch)
    if state.epoch == epoch:
        return state
    if state.progress.to_json() != LakeProgress().progress.to_json():
        _log.warning(
            "Incremental snapshots that were requested of another server or history are not continued: every table is "
            "read from the present one."
        )
    return LakeProgress(epoch=epoch)
