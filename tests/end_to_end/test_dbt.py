"""A dbt project on the lake: the sources that ``wal2lake dbt`` prints, and the model of docs/downstream.md."""

import fcntl
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml

from cdc_core.assemble import Connector
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support.lake import lake_path, lake_settings, rows, write_properties
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCHEMA = """
create table orders (id int primary key, total numeric(12,2) not null, note text, due date not null);
comment on table orders is 'One row an order.';
comment on column orders.total is 'In euros.';
create table lines (order_id int, number int, label text not null, primary key (order_id, number));
insert into orders select g, g * 1.5, 'n' || g, '2026-01-01' from generate_series(1, 50) g;
insert into orders values (51, 1, 'no end', 'infinity');
insert into lines select g, 1, 'l' || g from generate_series(1, 50) g;
"""
FITS = {"not_null": {"config": {"where": "__rescued is null"}}}


@pytest.fixture(scope="module")
def dbt_python():
    """The Python of an environment with dbt; its modules of Spark are those of this one."""
    folder, requirements = Path(sys.prefix) / "dbt", Path(__file__).with_name("dbt-requirements.txt")
    python, complete = folder / "bin" / "python", folder / "complete"
    with Path(sys.prefix, "dbt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != requirements.read_text():
            for order in (
                [sys.executable, "-m", "venv", "--clear", str(folder)],
                [str(python), "-m", "pip", "install", "-q", "-r", str(requirements)],
            ):
                subprocess.run(order, check=True, timeout=patient(300), stdout=subprocess.DEVNULL)
            complete.write_text(requirements.read_text())
    return python


class Project:
    """A dbt project whose sources are those of a connector's file, and whose one model is the documented one."""

    def __init__(self, python, folder, sources):
        self.python, self.folder, self.results = python, folder, folder / "results.jsonl"
        profile = {"type": "spark", "method": "session", "schema": "models", "host": "NA"}
        (folder / "models").mkdir(parents=True)
        self._write("profiles.yml", {"shop": {"target": "dev", "outputs": {"dev": profile}}})
        settings = {"name": "shop", "version": "1.0.0", "profile": "shop"}
        self._write("dbt_project.yml", {**settings, "flags": {"send_anonymous_usage_stats": False}})
        (folder / "models" / "sources.yml").write_text(sources)
        text = (ROOT / "docs" / "downstream.md").read_text(encoding="utf-8")
        found = re.search(r"```sql\n(\{\{ config\(.*?)```", text, re.DOTALL)
        (folder / "models" / "orders.sql").write_text(found[1])

    def _write(self, name, content):
        (self.folder / name).write_text(yaml.safe_dump(content))

    def __enter__(self):
        program, modules = Path(__file__).with_name("dbt_commands.py"), [ROOT, sysconfig.get_paths()["purelib"]]
        order = [self.python, program, self.results, *modules]
        with (self.folder / "output").open("w") as output:
            self.process = subprocess.Popen(
                list(map(str, order)), cwd=self.folder, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True
            )
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        try:
            self.process.wait(patient(60))
        finally:
            self.process.kill()

    def done(self, *command):
        """Run a command of dbt; returns its result."""
        known = self._lines()
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        wait_until(lambda: len(self._lines()) > len(known) or self.process.poll() is not None, 200)
        made = self._lines()
        said = (self.folder / "output").read_text()[-4000:]
        assert len(made) > len(known), said
        result = json.loads(made[-1])
        return result if result["success"] else {**result, "said": said}

    def _lines(self):
        return self.results.read_text().splitlines() if self.results.exists() else []


@pytest.fixture
def shop(pg, program, tmp_path):
    database = pg.database("dbt")
    pg.execute(database, SCHEMA)
    settings = {"wal2lake.lake.change.feed.tables": "public.orders", "topic.prefix": "shop", **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "shop.properties", pg.properties(database, **settings))
    assert program.stream(file).returncode == 0
    return database, file


def printed(program, file, *more):
    done = program.run("dbt", file, *more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sources_have_the_catalogues_columns_comments_and_tests(shop, program, tmp_path):
    _, file = shop
    (source,) = yaml.safe_load(printed(program, file, "public.orders", "public.lines"))["sources"]
    assert (source["name"], source["schema"], source["quoting"]) == ("shop", "delta", {"identifier": True})
    assert source["config"]["freshness"] == {"warn_after": {"count": 60, "period": "minute"}}
    lines, orders = source["tables"]
    assert (orders["name"], orders["description"]) == ("public_orders", "One row an order.")
    assert orders["identifier"] == str(lake_path(load(file), TableId("public", "orders")))
    columns = {column["name"]: column for column in orders["columns"]}
    assert columns["id"] == {"name": "id", "data_type": "int", "data_tests": [FITS, "unique"]}
    assert columns["total"]["description"] == "In euros."
    assert (columns["total"]["data_type"], columns["total"]["data_tests"]) == ("decimal(12,2)", [FITS])
    assert "data_tests" not in columns["note"] and "data_tests" not in columns["__commit_ts"]
    assert all("unique" not in str(column.get("data_tests")) for column in lines["columns"]), "its key is two columns"
    (source,) = yaml.safe_load(printed(program, file, "public.orders", "--freshness-minutes", "0"))["sources"]
    assert "config" not in source
    # As they are registered in catalogs; versions of a row have the key of the row.
    text = file.read_text() + "wal2lake.catalogs=glue\nwal2lake.lake.delete.mode=history\n"
    other = tmp_path / "other.properties"
    other.write_text(text + "column.mask.hash.SHA-256.with.salt.s=public.lines.label\n")
    (source,) = yaml.safe_load(printed(program, other))["sources"]
    assert (source["schema"], "quoting" in source) == ("shop", False)
    assert [table["name"] for table in source["tables"]] == ["public_lines", "public_orders"]
    (identity,) = [column for column in source["tables"][1]["columns"] if column["name"] == "id"]
    assert identity["data_tests"] == [FITS, {"unique": {"config": {"where": "__current"}}}]
    refused = program.run("dbt", file, "public.order")
    assert refused.returncode == 1 and "Did you mean public.orders?" in refused.stderr


def test_sources_name_the_tables_that_spark_registers(pg, spark, tmp_path):
    """Of tables that have one name in Spark, also those that got it before the other was there."""
    database = pg.database("dbt")
    pg.execute(database, "create schema a; create schema a_b; create table a.b_c (id int primary key, whose text)")
    pg.execute(database, "create table kept (id int primary key, whose text); insert into kept values (1, 'kept')")
    pg.execute(database, "insert into a.b_c values (1, 'a.b_c')")
    settings = {"topic.prefix": "shop", "wal2lake.lake.catalog.database": database, **lake_settings(tmp_path)}
    file = write_properties(tmp_path / "shop.properties", pg.properties(database, **settings))
    connector = Connector.from_file(file)

    def named():
        """What Spark reads under the names of each source of dbt."""
        (source,) = connector.dbt_source()["sources"]
        assert source["schema"] == database
        names = {table["name"]: table.get("identifier", table["name"]) for table in source["tables"]}
        assert len(names) == len(source["tables"])
        found = {name: spark.sql(f"select whose from {database}.`{names[name]}`").collect() for name in names}
        return {name: [row.whose for row in rows] for name, rows in found.items()}

    spark.sql(f"create database {database} location '{tmp_path}'")
    try:
        connector.initial_snapshot(spark)
        assert named() == {"a_b_c": ["a.b_c"], "public_kept": ["kept"]}
        pg.execute(database, 'create table a_b.c (id int primary key, whose text); create table "Kept" (like kept)')
        pg.execute(database, """insert into a_b.c values (1, 'a_b.c'); insert into "Kept" values (1, 'Kept')""")
        connector.snapshot([TableId("a_b", "c"), TableId("public", "Kept")], spark)
        connector.maintain(spark=lambda: spark)
        found = named()
        assert sorted(found.values()) == [["Kept"], ["a.b_c"], ["a_b.c"], ["kept"]]
        assert all(re.fullmatch("(a_b_c|public_[kK]ept)_[0-9a-f]{8}", name) for name in found), found
        assert spark.sql(f"select whose from {database}.a_b_c").first().whose == "a.b_c", "names that were used stay"
    finally:
        spark.sql(f"drop database {database} cascade")
    pg.drop_database(database)


def test_the_documented_model_follows_a_table_and_the_tests_hold(shop, pg, program, dbt_python, tmp_path):
    database, file = shop
    path = lake_path(load(file), TableId("public", "orders"))

    def table():
        asked = "select id, total, note, {} as is_deleted from t {}"
        model = tmp_path / "project" / "warehouse" / "models.db" / "orders"
        made = rows(model, asked.format("is_deleted", "where not is_deleted order by id"))
        return made, rows(path, asked.format("false", "order by id"))

    with Project(dbt_python, tmp_path / "project", printed(program, file)) as project:
        built = project.done("build")
        assert built["success"], built
        tests = [name for name in built["nodes"] if name.startswith("source_")]
        assert len(tests) == 7, built["nodes"]
        assert table()[0] == table()[1]
        fresh = project.done("source", "freshness")
        assert fresh["nodes"] == {"public_lines": "pass", "public_orders": "pass"}, fresh
        # Nothing has changed; then each kind of change, a key that changes, and one that is used again.
        assert project.done("build")["success"]
        pg.execute(database, "update orders set total = total + 1 where id < 20")
        pg.execute(database, "delete from orders where id in (20, 21)")
        pg.execute(database, "update orders set id = 20, note = 'moved' where id = 40")
        pg.execute(database, "insert into orders values (60, 1, 'new', '2026-01-02')")
        assert program.stream(file).returncode == 0
        built = project.done("build")
        assert built["success"], built
        made, held = table()
        assert made == held and {row["id"] for row in held} >= {20, 60} and 40 not in {row["id"] for row in held}
