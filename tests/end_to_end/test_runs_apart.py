"""Two connectors with one state path: what belongs to one run never reaches another's lake."""

import shutil
import signal

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties
from tests.support.program import Program
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

T = TableId("public", "t")


def connector(pg, folder, name, **more):
    """A connector with a database and a lake of its own, and the state path of all of them."""
    database = pg.database(name)
    pg.execute(database, "create table t (id int primary key, v text)")
    pg.execute(database, f"insert into t select g, '{name}' from generate_series(1, 20) g")
    settings = {**lake_settings(folder / name), "wal2lake.state.path": str(folder / "state"), "slot.name": name}
    file = write_properties(folder / f"{name}.properties", pg.properties(database, **{**settings, **more}))
    return database, file


@pytest.fixture
def beside(program):
    """Runs that borrow another Java process, as two at once cannot have the same."""
    other = Program(forks=program.forks)
    yield other
    other.close()


def test_two_runs_with_one_state_path_keep_their_rows_apart(pg, program, beside, tmp_path):
    ours, mine = connector(pg, tmp_path, "apart_a")
    theirs, other = connector(pg, tmp_path, "apart_b")
    for file in (mine, other):
        assert program.stream(file).returncode == 0
    spool = tmp_path / "state" / "spool"
    with (
        program.started("run", mine, "--max-seconds", "1500") as first,
        beside.started("run", other, "--max-seconds", "1500") as second,
    ):
        wait_until(lambda: len(list(spool.glob("*.lock"))) == 2, 60, "both runs")
        for number in range(30):
            for database in (ours, theirs):
                pg.execute(database, f"update t set v = v || '{number}' where id % 3 = {number % 3}")
                pg.execute(database, f"insert into t values ({100 + number}, '{database} {number}')")
        for file in (mine, other):
            wait_until(lambda file=file: difference(file, [T]) == [], 60, "the changes in the lake")
        assert first.end(signal.SIGTERM) == 0, first.said()[-3000:]
        assert second.end(signal.SIGTERM) == 0, second.said()[-3000:]
    assert list(spool.iterdir()) == []

    # Stopped, its folder removed by somebody, and continued while another run of the neighbour had come and gone.
    with program.started("run", mine, "--max-seconds", "1500") as first:
        wait_until(lambda: len(list(spool.glob("*.lock"))) == 1, 60, "the run")
        pg.execute(ours, "insert into t values (500, 'streaming')")
        wait_until(lambda: difference(mine, [T]) == [], 60, "the change in the lake")
        first.process.send_signal(signal.SIGSTOP)
        pg.execute(ours, "update t set v = 'while stopped' where id < 9")
        pg.execute(theirs, "update t set v = 'of the neighbour' where id < 9")
        done = beside.stream(other)
        assert done.returncode == 0, done.stderr[-3000:]
        (folder,) = spool.glob("*.lock")  # the neighbour left the stopped run's folder alone
        shutil.rmtree(folder.with_suffix(""))
        first.process.send_signal(signal.SIGCONT)
        assert first.end(seconds=60) != 0
        assert "removed or is not accessible" in first.said()
    assert difference(other, [T]) == []
    done = program.stream(mine)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(mine, [T]) == [] and difference(other, [T]) == []

    # A killed run leaves its folder; the next run of whoever shares the state path removes it.
    pg.execute(ours, "delete from t where id = 1")
    program.killed_at("after-spool", mine)
    assert any(path.suffix == ".lock" for path in spool.iterdir())
    assert program.stream(other).returncode == 0
    assert list(spool.iterdir()) == []
    assert program.stream(mine).returncode == 0
    assert difference(mine, [T]) == []
