"""Rows that changes of a slice must find in the lake table, and that it does not have."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cdc_core.lake.reduce.expected_rows import ExpectedRows
from cdc_core.lake.reduce.latest import image_schema, images_of_keys
from cdc_core.lake.rows.codes import Tuples
from cdc_core.lake.rows.images import column, validity
from cdc_core.lake.rows.row_keys import KeyColumns, KeyIndex


@dataclass(frozen=True, slots=True)
class AbsentRows:
    """At least one row, by its key; in a table without a key, by all of its values.

    ``numbers`` are those of ``coder``, for the columns of ``key`` (None: all columns). ``counts`` tells how many rows
    there are of each, ``lsns`` the commit LSN of the first change that needs one. ``keeps``: an unchanged value that
    the server did not send (TOAST) would have to be taken from the row. Shape: [M] each
    """

    numbers: np.ndarray
    counts: np.ndarray
    lsns: np.ndarray
    keeps: np.ndarray
    key: KeyColumns | None
    coder: Tuples

    @classmethod
    def of_keys(
        cls, expected: ExpectedRows, present: np.ndarray, seek: np.ndarray, index: KeyIndex
    ) -> AbsentRows | None:
        """Return the expected rows of keys at which none is ``present``; None if there are none.

        ``seek`` are the numbers of the keys from whose rows values are taken. Shape: present[K], seek[S]
        """
        numbers, lsns = expected.absent(present)
        if not len(numbers):
            return None
        return cls(numbers, np.ones_like(numbers), lsns, np.isin(numbers, seek), index.columns, index.coder)

    @property
    def count(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    @property
    def first_lsn(self) -> int:
        """The lowest commit LSN."""
        return int(self.lsns.min())

    def besides(self, rows: pa.Table, schema: pa.Schema) -> AbsentRows | None:
        """Return the rows that no change row of ``rows`` writes or removes, or whose values are to be kept.

        ``schema`` is the lake's, which contains the columns of ``rows``.
        """
        new, old, has_old = images_of_keys(rows, self.key, image_schema(schema))
        has_new = validity(column(rows, "after"))
        touched = np.concatenate([self.coder.codes(new)[has_new], self.coder.codes(old)[has_old]])
        return self._only(self.keeps | ~np.isin(self.numbers, touched))

    def keeping(self) -> AbsentRows | None:
        """Return the rows whose values are to be kept."""
        return self._only(self.keeps)

    def _only(self, mask: np.ndarray) -> AbsentRows | None:
        if not mask.any():
            return None
        parts = {name: getattr(self, name)[mask] for name in ("numbers", "counts", "lsns", "keeps")}
        return replace(self, **parts)
