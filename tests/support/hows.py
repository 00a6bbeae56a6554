"""The ways in which a slice is applied to a table in memory.

Files are rewritten, rows are marked, rows are marked in some files and the others moved, keys are found by an index.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

from cdc_core.lake.apply.ways import REWRITE, Ways
from cdc_core.lake.index.key_positions import KeyPositions
from tests.support.content import MemoryContent

HOWS = ("rewrite", "mark", "move", "index", "mixed")


@cache
def _positions() -> KeyPositions:
    folder = tempfile.mkdtemp(prefix="index-")
    import atexit

    atexit.register(shutil.rmtree, folder, True)
    return KeyPositions(Path(folder), 1 << 30)


def prepared(content: MemoryContent, how: str) -> MemoryContent:
    """Let the table's files say that they are large, where that is needed for an index to be used."""
    content.scale = 2**24 if how == "index" else 1
    return content


def ways_of(how: str, chance: random.Random, content: MemoryContent) -> Ways:
    """The way of the next slice."""
    if how == "mixed":
        sizes = [0, *(file.size for file in content.files)]
        return Ways(chance.choice(sizes) if chance.random() < 0.8 else None)
    if how == "move":
        return Ways(0, moved=lambda marked: {each.file.path for each in marked if chance.random() < 0.5})
    return {"rewrite": REWRITE, "mark": Ways(0), "index": Ways(0, _positions())}[how]
