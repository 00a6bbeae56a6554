"""Which files have so many rows marked as deleted that their other rows should be moved to new files.

Readers read marked rows too, and leave them out. A file is worn from 12 to 20 % of marked rows on, each at a share of
its own: changes that are spread over a table wear all of its files alike, and they should not all be due in one minute.
A large file is moved in parts, so that a pass remains short; the rows moved are marked, and the file is removed with
its last ones.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.moving import MovedPart

_LEAST, _MOST = 0.12, 0.2
# What a pass between rounds reads: 0.25 CPU seconds with 11 columns of mixed types. In memory, uncompressed, it needs
# about twice as much as the other limit.
PASS_BYTES = 8 << 20
_MEMORY_BYTES = 128 << 20


def worn(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that are due, those with the largest share of marked rows first."""
    due = [file for file in files if file.vector is not None and is_worn(file)]
    return sorted(due, key=_share, reverse=True)


def is_worn(file: DataFile, more: int = 0) -> bool:
    """Whether so many rows of a file are marked, or will be with ``more`` of them, that its other rows are due."""
    return _share(file, more) >= _due(file)


def worn_parts(table: DeltaTable, files: Sequence[DataFile], pass_bytes: int) -> list[MovedPart]:
    """Return what one pass moves to a new file; nothing if no file is due.

    Ended versions (``DataFile.is_history``) are not mixed with rows that can change.
    """
    due = worn(files)
    parts: list[MovedPart] = []
    octets = memory = 0
    for file in [file for file in due if file.is_history == due[0].is_history]:
        size = table.bytes_in_memory(file)
        if octets + file.size <= pass_bytes and memory + size <= _MEMORY_BYTES:
            parts.append(MovedPart(file))
        elif not parts:
            return [_first(table, file, pass_bytes / max(1, file.size), size)]
        else:
            continue
        octets, memory = octets + file.size, memory + size
    return parts


def _first(table: DeltaTable, file: DataFile, portion: float, memory: int) -> MovedPart:
    """Return the first rows of a file that is too large for a pass: a part of equal ones, each at most ``portion``."""
    live = table.live(file)
    if live is None or not table.marks_rows:
        return MovedPart(file)
    portion = min(portion, _MEMORY_BYTES / max(1, memory))
    places = np.flatnonzero(live)
    parts = math.ceil(len(places) / max(1, int(len(live) * portion)))
    count = math.ceil(len(places) / max(1, parts))
    return MovedPart(file) if parts < 2 else MovedPart(file, int(places[0]), int(places[count]))


def _share(file: DataFile, more: int = 0) -> float:
    return 1 - (file.live - more) / file.rows if file.rows else 0.0


def _due(file: DataFile) -> float:
    return _LEAST + (_MOST - _LEAST) * zlib.crc32(file.path.encode()) / 2**32
