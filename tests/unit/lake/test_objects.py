"""Copies of a store's objects on the machine, which other processes may remove at any time."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.delta.objects import Objects

NAME, CONTENT = "part-0.parquet", b"0123456789"


class JustRemoved(MachineFolder):
    """A folder whose files another process removes after each question whether they are there."""

    def touch(self, name: str) -> bool:
        is_there = super().touch(name)
        self.remove(name)
        return is_there


@pytest.mark.parametrize("kind", [MachineFolder, JustRemoved])
def test_an_object_is_read_whether_its_copy_stays_or_not(tmp_path: Path, kind: type[MachineFolder]) -> None:
    (tmp_path / "store").mkdir()
    folder = kind(tmp_path / "copies", 1 << 20, ".object", "copies")
    objects = Objects(f"file://{tmp_path}/store", {}, folder)
    objects.put(NAME, CONTENT)
    for offset, size, part in ((0, None, CONTENT), (4, None, CONTENT[4:]), (2, 3, CONTENT[2:5])):
        objects.keep(NAME, CONTENT)
        assert objects.get(NAME, offset, size) == part
    objects.keep(NAME, CONTENT)
    source = objects.open_input(NAME, len(CONTENT))
    for path in (tmp_path / "copies").iterdir():
        path.unlink()
    assert source.read() == CONTENT
