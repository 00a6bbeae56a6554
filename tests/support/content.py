"""A lake table in memory: what the merge engine asks of one, with files, statistics and a record of what was read."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.delta.bounds import Bounds
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import DeletionVector


@dataclass
class MemoryContent:
    """Files of rows. ``reads`` counts what was read since: (path, columns or None for all).

    Files say that they are ``scale`` times as large as their rows in memory.
    """

    schema: pa.Schema
    files: list[DataFile] = field(default_factory=list)
    reads: list[tuple[str, tuple[str, ...] | None]] = field(default_factory=list)
    held: dict[str, pa.Table] = field(default_factory=dict)
    made: int = 0
    scale: int = 1
    identity: str = field(default_factory=lambda: uuid.uuid4().hex)
    marks: dict[str, set[int]] = field(default_factory=dict)

    @property
    def tracked_schema(self) -> pa.Schema:
        return self.schema

    def add(self, rows: pa.Table) -> None:
        """One more file."""
        assert rows.schema.equals(self.schema), (rows.schema, self.schema)
        rows.validate(full=True)
        self.made += 1
        path = f"file-{self.made}"
        self.held[path] = rows
        bounds = Bounds()
        bounds.cover(rows)
        size = rows.nbytes * self.scale
        self.files.append(DataFile(path, size, rows.num_rows, bounds.minimum, bounds.maximum, bounds.nulls))

    def read(self, file: DataFile, columns: Sequence[str] | None = None, *, whole: bool = False) -> pa.Table:
        is_all = columns is None or list(columns) == self.schema.names
        self.reads.append((file.path, None if is_all else tuple(columns or ())))
        rows, live = self.held[file.path], self.live(file)
        rows = rows if live is None or whole else rows.filter(pa.array(live))
        return rows if columns is None else rows.select(list(columns))

    def read_at(self, file: DataFile, places: np.ndarray, columns: Sequence[str] | None = None) -> pa.Table:
        self.reads.append((file.path, ("some rows",) if columns is None else tuple(columns)))
        assert self.unmarked(file, places).all() and (np.diff(places) > 0).all()
        rows = self.held[file.path].take(pa.array(places))
        return rows if columns is None else rows.select(list(columns))

    def live(self, file: DataFile) -> np.ndarray | None:
        marks = self.marks.get(file.path)
        return None if marks is None else ~np.isin(np.arange(file.rows), list(marks))

    def unmarked(self, file: DataFile, places: np.ndarray) -> np.ndarray:
        return ~np.isin(places, list(self.marks.get(file.path, ())))

    def batches(self, file: DataFile, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        rows = self.read(file, names)
        yield from (rows.slice(at, 2) for at in range(0, rows.num_rows, 2))

    def commit(self, rewrite: Rewrite) -> None:
        """Put the rewrite in force, as one commit would."""
        made: Iterable[pa.Table] = list(rewrite.rows)
        gone = {file.path for file in rewrite.removed}
        for each in rewrite.marked:
            assert each.file.path not in gone and self.unmarked(each.file, each.places).all() and len(each.places)
            self.marks.setdefault(each.file.path, set()).update(each.places.tolist())
        gone |= {file.path for file in self.files if len(self.marks.get(file.path, ())) == file.rows}
        self.files = [self._with_vector(file) for file in self.files if file.path not in gone]
        for rows in made:
            self.add(rows)

    def _with_vector(self, file: DataFile) -> DataFile:
        marks = self.marks.get(file.path)
        return file if marks is None else replace(file, vector=DeletionVector("i", "", 0, len(marks)))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row, maps as dictionaries."""
        tables = [self.read(file) for file in self.files]
        every = pa.concat_tables(tables) if tables else self.schema.empty_table()
        maps = [each.name for each in self.schema if pa.types.is_map(each.type)]
        found = every.to_pylist()
        for row in found:
            row.update({name: dict(row[name]) for name in maps if row[name] is not None})
        return found
