"""The lake's side of a comparison: the rows of one version of a lake table that the source should have."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cdc_core.errors import LakeError
from cdc_core.lake.compare.row_hash import RowHash
from cdc_core.lake.compare.rows import Compared, KeyedColumns, is_among
from cdc_core.lake.delete_columns import CURRENT, DELETED, is_live
from cdc_core.lake.delta.candidates import Ranges
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.spark import StartSession, balanced, parallelism, run_tasks

_AT_ONCE = 16_384
# Rows whose digests one job returns: Spark allows a gigabyte.
_JOB_ROWS = 50_000_000


class LakeSide:
    """Reads the live rows of one version: in mode soft those not marked as deleted, in history the current ones.

    ``hashing`` computes the digests of rows as the server does, None: as ``compared`` does. ``spark`` starts a session
    whose tasks compute them, None: this process does.
    """

    def __init__(
        self,
        lake: DeltaTable,
        compared: Compared,
        hashing: RowHash | None = None,
        spark: StartSession | None = None,
    ) -> None:
        self._lake = lake
        self._hashing = hashing
        self._spark = spark
        self.compared = compared
        # Files of only ended versions have no current row.
        self._files = [file for file in lake.files if not file.is_history]
        self._digests: list[np.ndarray] = []

    def digests(self) -> np.ndarray:
        """Return the digest of each live row. Shape: uint64[N]"""
        self._digests = list(map(self._digests_of, self._files)) if self._spark is None else self._by_tasks(self._spark)
        return np.concatenate([np.zeros(0, dtype=np.uint64), *self._digests])

    def rows(self, unlike: np.ndarray) -> pa.Table:
        """Return the live rows whose digest is among ``unlike`` (sorted), after ``digests``."""
        parts = [self.compared.schema.empty_table()]
        for file, digests in zip(self._files, self._digests, strict=True):
            hits = is_among(digests, unlike)
            if hits.any():
                parts += list(_filtered(self._live(file), hits))
        return pa.concat_tables(parts).combine_chunks()

    def of_keys(self, keys: pa.Table, compared: KeyedColumns) -> pa.Table:
        """Return the live rows with one of the keys; files are left out by their statistics."""
        key = compared.key
        if not keys.num_rows:
            return self.compared.schema.empty_table()
        index, _ = KeyIndex.of(key, keys)
        # A value that is only in the text of a row has no statistics.
        files = self._files if any(key.with_text) else Ranges.of(keys, key.names).candidates(self._files)
        parts = [self.compared.schema.empty_table()]
        for file in files:
            for rows in self._live(file):
                mine = index.match(compared.keys_of(rows)) >= 0
                parts += [rows.filter(pa.array(mine))] if mine.any() else []
        return pa.concat_tables(parts).combine_chunks()

    def sample(self, count: int, rows: int, chance: random.Random) -> pa.Table:
        """Return the live rows among ``count`` runs of ``rows`` consecutive rows at random places of the files."""
        parts = [self.compared.schema.empty_table()]
        weights = [self._lake.row_count(file) for file in self._files]
        for file in chance.choices(self._files, weights, k=count) if any(weights) else ():
            total = self._lake.row_count(file)
            first = chance.randrange(max(1, total - rows + 1))
            places = np.arange(first, min(total, first + rows))
            places = places[self._lake.unmarked(file, places)]
            if len(places):
                read = self._lake.read_at(file, places)
                parts.append(self.compared.conformed(read.filter(pa.array(is_live(read)))))
        return pa.concat_tables(parts).combine_chunks()

    def _by_tasks(self, start: StartSession) -> list[np.ndarray]:
        """Return the digests of each file's rows, computed in Spark tasks."""
        spark, digests = start(), dict[str, bytes]()
        task = LakeTask(self._lake.path, self._lake.version, self.compared, self._hashing)
        for files in self._jobs():
            groups = balanced(files, lambda file: file[1], 2 * parallelism(spark))
            digests.update(run_tasks(spark, groups, task, "reading a lake table"))
        return [np.frombuffer(digests[file.path], dtype=np.uint64) for file in self._files]

    def _jobs(self) -> list[list[tuple[str, int]]]:
        """Return the files' paths and sizes, so many together as the results of one job may have bytes."""
        jobs, count = list[list[tuple[str, int]]](), _JOB_ROWS
        for file in self._files:
            if count >= _JOB_ROWS:
                jobs.append([])
                count = 0
            jobs[-1].append((file.path, file.size))
            count += self._lake.row_count(file)
        return jobs

    def digests_in(self, path: str) -> np.ndarray:
        """Return the digests of the live rows in a file, by its path in the table. Shape: uint64[N]"""
        return self._digests_of(next(file for file in self._files if file.path == path))

    def _digests_of(self, file: DataFile) -> np.ndarray:
        names = [*self.compared.read, *(name for name in (CURRENT, DELETED) if name in self._lake.schema.names)]
        # Each of some hundred steps costs the same for more rows at a time.
        batches = self._lake.batches(file, names, _AT_ONCE)
        digest = self.compared.digests if self._hashing is None else self._hashing.digests
        parts = [digest(rows) for rows in self._conformed(batches)]
        return np.concatenate([np.zeros(0, dtype=np.uint64), *parts])

    def _live(self, file: DataFile) -> Iterator[pa.Table]:
        return self._conformed(self._lake.batches(file))

    def _conformed(self, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for rows in batches:
            live = is_live(rows)
            yield self.compared.conformed(rows if live.all() else rows.filter(pa.array(live)))


@dataclass(frozen=True, slots=True)
class LakeTask:
    """Computes the digests of one version of a lake table in Spark tasks; picklable."""

    path: str
    version: int
    compared: Compared
    hashing: RowHash | None

    def __call__(self, file: tuple[str, int]) -> tuple[str, bytes]:
        """Return the path of a file, given with its size, and the digests of its rows. Raises LakeError."""
        lake = DeltaTable.open_version(self.path, self.version)
        if lake is None:
            raise LakeError(
                f"Version {self.version} of the lake table in {self.path} no longer exists.", "Compare again."
            )
        return file[0], LakeSide(lake, self.compared, self.hashing).digests_in(file[0]).tobytes()


def _filtered(batches: Iterator[pa.Table], hits: np.ndarray) -> Iterator[pa.Table]:
    at = 0
    for rows in batches:
        mine = hits[at : at + rows.num_rows]
        at += rows.num_rows
        if mine.any():
            yield rows.filter(pa.array(mine))
