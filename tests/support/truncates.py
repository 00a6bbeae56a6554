"""Slices with truncates of tables that keep rows, without the tasks that divide them: changes by key, then by file."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.changes import Changes, apply, prepare
from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.apply.truncated import EndedRows
from cdc_core.lake.apply.ways import Ways
from cdc_core.lake.delete_columns import mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.candidates import Content
from cdc_core.lake.delta.data_file import MarkedRows
from cdc_core.lake.reduce.row_states import truncation_of
from cdc_core.lake.rows.survey import in_order, is_op, survey
from cdc_core.schema.table import TableSchema


def prepared(rows: pa.Table, table: TableSchema, schema: pa.Schema, snapshot: str | None = None) -> Changes:
    """As ``prepare``, for slices that may have truncates."""
    return prepare(rows, table, schema, snapshot, survey(rows) if is_op(rows, "t").any() else None)


def applied(content: Content, changes: Changes, rows: pa.Table, ways: Ways) -> Rewrite:
    """As ``apply``, with the rows that a truncate among the change ``rows`` ends; rows are marked then."""
    at = truncation_of(in_order(rows.filter(pa.array(is_op(rows, "t")))))
    if at is None or mode_of(content.schema.names) is DeleteMode.HARD:
        return apply(content, changes, ways=ways)
    effect = apply(content, changes, ways=replace(ways, mark_above=-1, moved=None))
    marks, more = {marks.file.path: marks for marks in effect.marked}, list[EndedRows]()
    for file in content.files:
        if not file.is_history:
            mine = marks[file.path].places if file.path in marks else np.zeros(0, dtype=np.int64)
            ended = EndedRows.of(content, file, at, mine, guarded=True)
            if len(ended.places):
                more.append(ended)
                marks[file.path] = MarkedRows(file, np.union1d(mine, ended.places))
    states = list(itertools.chain.from_iterable(ended.states(content) for ended in more))
    return replace(effect, rows=itertools.chain(effect.rows, states), marked=list(marks.values()))
