"""The rows of the signal table in a segment of the stream."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdc_core.decode import RelationRun, decode_rows, separated
from cdc_core.errors import NotUtf8Error
from cdc_core.schema import TableId

_log = logging.getLogger(__name__)

_INSERT, _DELETE = ord("I"), ord("D")


@dataclass(frozen=True, slots=True)
class SignalRow:
    """An inserted or deleted row: its position in the stream and its three columns; only the id of a deleted one.

    ``prior_end_lsn``, ``commit_lsn`` and ``tx_index`` are as in RAW_SCHEMA.
    """

    seq: int
    lsn: int
    prior_end_lsn: int
    is_deleted: bool
    id: str | None
    type: str | None
    data: str | None
    commit_lsn: int = 0
    tx_index: int = 0


def signal_rows(runs: Sequence[RelationRun], table: TableId) -> list[SignalRow]:
    """Return the rows in stream order; none for a table with fewer than three columns."""
    rows = []
    for run in runs:
        if run.table.id != table or len(run.relation.columns) < 3:
            continue
        try:
            raw, tuples = run.raw, decode_rows(run.raw, run.relation)
        except NotUtf8Error as error:
            _log.warning("Signals that are not UTF-8 are ignored. %s", error.message)
            raw, _, _ = separated(run.raw, run.relation)
            tuples = decode_rows(raw, run.relation)
        facts = [raw.column(name).to_numpy() for name in ("seq", "lsn", "prior_end_lsn", "commit_lsn", "tx_index")]
        # There are few signals, so each is processed separately.
        for at in np.flatnonzero((tuples.op == _INSERT) | (tuples.op == _DELETE)):
            is_deleted = bool(tuples.op[at] == _DELETE)
            columns = tuples.old if is_deleted else tuples.new
            of_id, of_type, of_data = [columns.text[index][int(at)].as_py() for index in range(3)]
            seq, lsn, prior, commit, index = (int(fact[at]) for fact in facts)
            rows.append(SignalRow(seq, lsn, prior, is_deleted, of_id, of_type, of_data, commit, index))
    return sorted(rows, key=lambda row: row.seq)
