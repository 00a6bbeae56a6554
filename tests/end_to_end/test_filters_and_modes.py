"""Row filters and column lists of a publication, with each delete mode, and changed while a table is read."""

import pytest

from tests.support.lake import lake_settings, rows, write_properties
from tests.support.waits import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

MODES = ("hard", "soft", "history")
CURRENT = {"hard": "true", "soft": 'not "__deleted"', "history": '"__current"'}
LONG = "(select string_agg(md5(g::text), '') from generate_series(1, 400) g)"
WAITS = (
    "select count(*) from pg_stat_activity where datname = %s and application_name = 'wal2lake' "
    "and wait_event_type = 'Lock'"
)


class Lake:
    """Tables with the same filter of each delete mode and replica identity: ``hard_full``, say, ``soft_index``."""

    def __init__(self, pg, program, folder, name, *identities):
        self.pg, self.program, self.folder = pg, program, folder
        self.database = pg.database(name)
        self.tables = {f"{mode}_{identity}": mode for mode in MODES for identity in identities}
        for table in self.tables:
            self.run(
                f"create table {table} (id int primary key, n int not null, v text);"
                f"alter table {table} alter v set storage external;"
                f"insert into {table} select g, g, {LONG} || g from generate_series(1, 12) g;"
                f"create unique index {table}_n on {table} (id, n);"
                f"alter table {table} replica identity {'full' if table.endswith('full') else f'using index {table}_n'}"
            )
        self.run(f'create publication "{self.database}" for table {self.published("(n > 4)")}')
        self.file = write_properties(
            folder / "filters.properties",
            pg.properties(
                self.database,
                **{
                    "publication.autocreate.mode": "disabled",
                    "wal2lake.lake.delete.mode.soft": "public.soft_.*",
                    "wal2lake.lake.delete.mode.history": "public.history_.*",
                    **lake_settings(folder),
                },
            ),
        )
        self.filter = "n > 4"

    def published(self, condition):
        return ", ".join(f"{table} where {condition}" for table in self.tables)

    def run(self, sql):
        self.pg.execute(self.database, sql)

    def each(self, sql):
        for table in self.tables:
            self.run(sql.format(table))

    def path(self, table):
        return self.folder / "lake" / "test" / "public" / table

    def wrong(self, columns="id, n, v"):
        found = {}
        for table, mode in self.tables.items():
            source = self.pg.execute(self.database, f"select {columns} from {table} where {self.filter} order by id")
            lake = rows(self.path(table), f"select {columns} from t where {CURRENT[mode]} order by id")
            if source != [tuple(row.values()) for row in lake]:
                found[table] = ([row[:2] for row in source], [tuple(row.values())[:2] for row in lake])
        return found

    def overlaps(self):
        """Versions of one key that are valid at the same time."""
        sql = (
            'select a.id from t a join t b on a.id = b.id and (a."__valid_from_lsn", a."__tx_index") < '
            '(b."__valid_from_lsn", b."__tx_index") where a."__valid_to_lsn" is null '
            'or a."__valid_to_lsn" > b."__valid_from_lsn"'
        )
        return {table: found for table in self.of("history") if (found := rows(self.path(table), sql))}

    def of(self, mode):
        return [table for table, its in self.tables.items() if its == mode]

    def settle(self):
        done = self.program.stream(self.file)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        return done


def test_rows_that_leave_a_filter_and_come_back(pg, program, tmp_path):
    lake = Lake(pg, program, tmp_path, "modes", "full", "index")
    lake.settle()
    assert lake.wrong() == {}
    # Out, in, out and in again, in one transaction and in several; deleted outside the filter; moved to another key.
    lake.each("update {0} set n = 1 where id in (5, 6, 7)")
    lake.settle()
    assert lake.wrong() == {}
    for table in lake.of("soft"):
        gone = rows(lake.path(table), 'select id, v from t where "__deleted" order by id')
        assert [row["id"] for row in gone] == [5, 6, 7] and all(row["v"] for row in gone), table
    lake.each(
        "update {0} set n = 50 where id = 5; delete from {0} where id = 6; update {0} set n = 60, id = 70 where id = 7"
    )
    lake.each("begin; update {0} set n = 1 where id = 8; update {0} set n = 81 where id = 8; commit")
    lake.each("update {0} set n = 1 where id = 9")
    lake.each("update {0} set n = 91, v = 'changed' where id = 9; update {0} set n = 2 where id = 1")
    lake.each("update {0} set n = 30 where id = 2")
    lake.settle()
    assert lake.wrong() == {}
    # With the index, n is part of the lake's key.
    deleted = rows(lake.path("soft_full"), 'select id from t where "__deleted" order by id')
    assert deleted == [{"id": 6}, {"id": 7}]
    assert lake.overlaps() == {}
    for table in lake.of("history"):
        assert all(row["v"] for row in rows(lake.path(table), "select v from t")), table
    # The filter is changed while nobody streams, and back.
    lake.each("insert into {0} select g, g, 'new' from generate_series(100, 110) g")
    lake.run(f'alter publication "{lake.database}" set table {lake.published("(n > 104)")}')
    lake.each("update {0} set v = 'narrow' where n > 102")
    lake.run(f'alter publication "{lake.database}" set table {lake.published("(n > 4)")}')
    lake.each("delete from {0} where id = 110")
    for _ in range(2):
        lake.settle()
        assert lake.wrong() == {} and lake.overlaps() == {}


def test_a_filter_or_column_list_that_changes_while_the_tables_are_read(pg, program, tmp_path):
    lake = Lake(pg, program, tmp_path, "while_read", "full")

    def change(command, published, change_rows):
        """While the snapshot is open and no row is read."""
        with lake.pg.connect(lake.database) as session:
            session.execute("begin")
            for table in lake.tables:
                session.execute(f"lock table {table} in access exclusive mode")
            with program.started(command[0], lake.file, *command[1:]) as run:
                waits = [lake.database]
                wait_until(lambda: pg.execute("postgres", WAITS, waits) != [(0,)], 60, "the wait for a lock")
                session.execute(f'alter publication "{lake.database}" set table {published}')
                for table in lake.tables:
                    session.execute(change_rows.format(table))
                session.execute("commit")
                code = run.end(seconds=120)
                assert code in (0, 1) and "Traceback" not in run.said(), run.said()[-3000:]

    # A first read, a second one, and one of fewer columns.
    change(("run", "--until-idle", "0.2"), lake.published("(n > 6)"), "update {0} set v = 'w' where id > 7")
    lake.filter = "n > 6"
    lake.settle()
    assert lake.wrong() == {}
    change(("snapshot",), lake.published("(n > 8)"), "update {0} set v = 'x' where id > 9")
    lake.filter = "n > 8"
    lake.settle()
    assert lake.wrong() == {}
    listed = ", ".join(f"{table} (id, n) where (n > 8)" for table in lake.tables)
    lake.each("alter table {0} replica identity using index {0}_n")
    change(("snapshot",), listed, "update {0} set n = 3 where id = 12")
    lake.settle()
    assert lake.wrong("id, n") == {} and lake.overlaps() == {}
    assert "v" not in rows(lake.path("hard_full"))[0]
    # Wider, while the lake is re-read by the stream itself.
    lake.each("update {0} set n = 40 where id = 1")
    lake.run(f'alter publication "{lake.database}" set table {", ".join(lake.tables)}')
    lake.each("alter table {0} alter n type bigint; insert into {0} values (200, 200, 'last')")
    lake.filter = "true"
    lake.settle()
    assert lake.wrong() == {} and lake.overlaps() == {}
