"""What a publication sends of a table decides what the lake has of it: row filters and column lists."""

import pytest

from tests.support.lake import lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]


LONG = "(select string_agg(md5(g::text), '') from generate_series(1, 400) g)"


def test_a_changed_row_filter_or_column_list_is_followed(pg, program, tmp_path):
    """What a publication sends of a table decides what the lake has of it, whenever it is changed."""
    database = pg.database("filtered")
    pg.execute(
        database,
        "create table first (id int primary key, n int not null, v text);"
        "alter table first alter v set storage external; create unique index sent on first (id, n);"
        f"insert into first select g, g, {LONG} from generate_series(1, 20) g;"
        "alter table first replica identity using index sent;"
        f'create publication "{database}" for table first where (n > 10)',
    )
    settings = {"publication.autocreate.mode": "disabled", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "filtered.properties", pg.properties(database, **settings))
    path = tmp_path / "lake" / "test" / "public" / "first"

    def shown():
        return {one["id"]: one for one in rows(path)}

    checked = program.run("check", file)
    assert "REPLICA IDENTITY FULL" in checked.stdout and "row filter" in checked.stdout
    assert program.stream(file).returncode == 0
    assert sorted(shown()) == list(range(11, 21))
    # In and out of the filter: an update becomes an insert, or a delete. The value that did not change is not sent.
    pg.execute(database, "update first set n = 50 where id = 3; update first set n = 1 where id = 12")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "public.first is re-read: An UPDATE made rows of public.first pass" in done.stderr
    assert sorted(shown()) == [3, 11, *range(13, 21)]
    value = shown()[11]["v"]
    assert value and all(one["v"] == value for one in shown().values())
    # With the value in the old row nothing is missing, and nothing is read again (but once for the other identity).
    pg.execute(database, "alter table first replica identity full; update first set n = 51 where id = 3")
    assert program.stream(file).returncode == 0
    pg.execute(database, "update first set n = 50 where id = 4")
    done = program.stream(file)
    assert done.returncode == 0 and "re-read" not in done.stderr, done.stderr[-3000:]
    assert shown()[4]["v"] == value
    with program.started("run", file, "--max-seconds", "1500") as run:
        pg.execute(database, "alter table first replica identity default")
        pg.execute(database, f'alter publication "{database}" set table first where (id < 8)')
        wait_until(lambda: sorted(shown()) == list(range(1, 8)), 60, "the new filter's rows")
        pg.execute(database, f'alter publication "{database}" set table first (id, v)')
        wait_until(lambda: "n" not in (found := shown())[1] and len(found) == 20, 60, "the column list")
        run.end(2)
    pg.execute(database, f'alter publication "{database}" set table first (id, n)')
    assert program.stream(file).returncode == 0
    assert len(shown()) == 20 and shown()[3]["n"] == 51
