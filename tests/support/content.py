"""A lake table in memory: what the merge engine asks of one, with files, statistics and a record of what was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from cdc_core.lake.apply.rewrite import Rewrite
from cdc_core.lake.delta.bounds import Bounds
from cdc_core.lake.delta.data_file import DataFile


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

    def read(self, file: DataFile, columns: Sequence[str] | None = None) -> pa.Table:
        self.reads.append((file.path, None if columns is None else tuple(columns)))
        rows = self.held[file.path]
        return rows if columns is None else rows.select(list(columns))

    def commit(self, rewrite: Rewrite) -> None:
        """Put the rewrite in force, as one commit would."""
        made: Iterable[pa.Table] = list(rewrite.rows)
        gone = {file.path for file in rewrite.removed}
        self.files = [file for file in self.files if file.path not in gone]
        for rows in made:
            self.add(rows)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every row, maps as dictionaries."""
        tables = [self.held[file.path] for file in self.files]
        every = pa.concat_tables(tables) if tables else self.schema.empty_table()
        maps = [each.name for each in self.schema if pa.types.is_map(each.type)]
        found = every.to_pylist()
        for row in found:
            row.update({name: dict(row[name]) for name in maps if row[name] is not None})
        return found
