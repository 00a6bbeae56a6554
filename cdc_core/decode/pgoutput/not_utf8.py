"""Separates row messages whose text is not UTF-8 from the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.decode.pgoutput.tuples import decode_rows
from cdc_core.errors import NotUtf8Error
from cdc_core.schema import Relation


def separated(raw: pa.RecordBatch, relation: Relation) -> tuple[pa.RecordBatch, pa.RecordBatch, NotUtf8Error | None]:
    """Return the row messages that can be decoded, those that are not UTF-8, and the first one's error.

    Shape:  raw[N] of RAW_SCHEMA → two batches of N rows together, each in the same order.

    Raises: ProtocolError as ``decode_rows`` does.
    """
    is_bad, first = np.zeros(raw.num_rows, dtype=bool), None
    ranges = [(0, raw.num_rows)]
    # row-wise: only where a value is not UTF-8, and only down to the rows that have one
    while ranges:
        start, end = ranges.pop()
        try:
            decode_rows(raw.slice(start, end - start), relation)
        except NotUtf8Error as error:
            if end - start == 1:
                is_bad[start], first = True, first or error
            else:
                half = (start + end) // 2
                ranges += [(half, end), (start, half)]
    return raw.filter(pa.array(~is_bad)), raw.filter(pa.array(is_bad)), first
