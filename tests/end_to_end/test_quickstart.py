"""The quickstart, as a user would follow it: every command of the page is run, in an empty folder, against a server.

Not run are the blocks marked ``shell`` instead of ``bash``: the installation, and ``dagster dev``, which does not end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.page import Shell
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


def test_every_command_of_the_quickstart_does_what_the_page_says(
    pg: Cluster, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = pg.database("quick")
    monkeypatch.chdir(tmp_path)
    shell = Shell(pg, program, tmp_path, database)
    try:
        assert shell.follow("quickstart.md") >= 15
        assert not (tmp_path / "lake" / "shop").exists()
        assert pg.execute(database, "select slot_name from pg_replication_slots where slot_name = 'shop'") == []
    finally:
        pg.execute(database, "drop owned by wal2lake; drop role if exists wal2lake")
