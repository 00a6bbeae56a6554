"""What a run loads: a run into the lake has no part of the events' wing but its options."""

import subprocess
import sys

import pytest

from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import sys
from cdc_core.__main__ import main
sys.argv = ["wal2lake", "run", sys.argv[1], "--until-idle", "0.2", "--max-seconds", "600"]
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
loaded = [name for name in sys.modules if name.startswith("cdc_core.events.") and name.count(".") > 2]
print("LOADED", *sorted(name for name in loaded if not name.endswith(".options")))
"""


def test_a_run_into_the_lake_loads_nothing_of_events(pg: Cluster, tmp_path) -> None:
    database = pg.database("wings")
    pg.execute(database, "create table t (id int primary key, v text); insert into t values (1, 'a')")
    settings = {"table.include.list": "public.t", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "wings.properties", pg.properties(database, **settings))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, timeout=patient(200), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "LOADED"
