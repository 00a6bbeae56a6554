"""Tables that join the capture, leave it, and come back: nothing of theirs is missed."""

import threading
import time

import pytest

from cdc_core.schema.table import TableId
from tests.support.lake import difference, lake_settings, write_properties

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

FIRST, SECOND = TableId("public", "first"), TableId("public", "second")
SCHEMA = """
create table first (id int primary key, v text);
create table second (id int primary key, v text);
insert into first select g, 'v' from generate_series(1, 20) g;
insert into second select g, 'v' from generate_series(1, 20) g;
"""


def capturing(pg, database, folder, *tables):
    return write_properties(
        folder / "membership.properties",
        pg.properties(
            database,
            **{
                "table.include.list": ",".join(f"public.{table}" for table in tables),
                "publication.autocreate.mode": "filtered",
                **lake_settings(folder),
            },
        ),
    )


def test_a_table_that_joins_or_comes_back_is_read_whole(pg, program, tmp_path):
    database = pg.database("membership")
    pg.execute(database, SCHEMA)
    file = capturing(pg, database, tmp_path, "first")
    assert program.stream(file).returncode == 0

    # A transaction that wrote to the newcomer before it was published, and commits once the run waits for it.
    open_one = pg.connect(database)
    open_one.execute("begin")
    open_one.execute("insert into second values (100, 'written before it was published')")

    def commit_later():
        time.sleep(10)
        open_one.execute("commit")
        open_one.close()

    committing = threading.Thread(target=commit_later)
    committing.start()
    file = capturing(pg, database, tmp_path, "first", "second")
    done = program.stream(file)
    committing.join(30)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [FIRST, SECOND]) == []

    # Out of the capture, changed meanwhile, and in again: what it missed never comes by the stream.
    assert program.stream(capturing(pg, database, tmp_path, "first")).returncode == 0
    pg.execute(database, "update second set v = 'changed while nobody looked'; delete from second where id < 5")
    file = capturing(pg, database, tmp_path, "first", "second")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert difference(file, [FIRST, SECOND]) == []
