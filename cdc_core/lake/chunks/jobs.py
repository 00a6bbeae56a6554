"""Writes the rows of chunks to a lake table in one task of Spark, between two rounds."""

from __future__ import annotations

import logging

from cdc_core.errors import CdcError
from cdc_core.lake.chunks.task import ChunkOrder, ChunkOutcome, ChunkTask
from cdc_core.lake.schema.features import announce
from cdc_core.lake.slice.jobs import Work
from cdc_core.lake.write.refused_reads import told
from cdc_core.spark import run_tasks

_log = logging.getLogger(__name__)


def write_chunks(work: Work, order: ChunkOrder) -> ChunkOutcome:
    """Write the rows in one commit; errors are in the outcome. May be repeated."""
    table = order.target.table.id
    try:
        (outcome,) = run_tasks(work.spark(), [[order]], ChunkTask(work.task), f"writing rows of {table}")
    except CdcError as error:
        return ChunkOutcome(table, error=error)
    announce(str(table), outcome.enabled, marks=outcome.marks)
    if outcome.refused and outcome.error is None:
        rows, reasons = f"{outcome.refused:,}", told(outcome.reasons)
        _log.warning("%s: %s rows that were read are in quarantine (%s).", table, rows, reasons)
    return outcome
