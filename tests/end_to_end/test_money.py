"""money in databases of other locales than C: the lake has the amounts that sessions of the database's users have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from cdc_core.config.connector import load
from cdc_core.errors import SourceError
from cdc_core.option import Secret
from cdc_core.postgres.catalog.money import decimals
from cdc_core.postgres.catalog.types import TypeCatalog
from cdc_core.postgres.connection import connect
from cdc_core.postgres.preflight.check import run_checks
from cdc_core.schema.pg_type import MONEY
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster, binaries
from tests.support.lake import lake_path, lake_settings, rows, write_properties
from tests.support.locales import server_with_locales
from tests.support.postgres_options import options_for
from tests.support.program import Program

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
create domain price as money;
create table amounts (id int primary key, m money default 7::money, p price, v text);
create table lists (id int primary key, ms money[], ps price[]);
create table keyed (m money primary key, v text);
create table bare (m money, v text);
alter table bare replica identity full;
"""
# A point, a comma, a symbol that ends in a point, a sign before or behind; decimals 2, 3 and 0.
ROWS = """
insert into amounts select {first} + n, a::money, (-a)::money, 'v'
    from unnest(array[0, 1, -1, 0.01, 1234.56, -1234567.89, 1234.567, 9223372036854775]::numeric[])
    with ordinality as u(a, n);
insert into amounts (id) values ({first} + 20);
insert into lists values ({first}, array[{first}.5::money, null, (-1234.56)::money], array[1.25::money]);
insert into keyed select (n + 0.25)::numeric::money, 'v' from generate_series({first}, {first} + 4) n;
insert into bare select (n + 1000.25)::numeric::money, 'v' from generate_series({first}, {first} + 4) n;
"""
CHANGES = """
update keyed set m = m + 1000::money where m < 2::money;
delete from keyed where m between 2::money and 3::money;
update bare set v = 'w' where m < 1002::money;
delete from bare where m between 1003::money and 1004::money;
alter table amounts add column late money default 1234.56::money;
update amounts set m = m + 1::money where id % 3 = 0 and m < 1000000::money;
insert into amounts values (300, 3::money, 4::money, 'v', 5::money);
"""
TABLES = {name: TableId("public", name) for name in ("amounts", "lists", "keyed", "bare")}
CAST = {"ms": "ms::numeric[]", "ps": "ps::numeric[]", "m": "m::numeric", "p": "p::numeric", "late": "late::numeric"}


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    flavour = "debian15" if binaries("debian15") else "embedded18"
    with server_with_locales(flavour, "bg_BG", "ar_KW", "ja_JP") as cluster:
        yield cluster


def of_lake(file: Path, name: str) -> list[dict[str, Any]]:
    found = rows(lake_path(load(file), TABLES[name]))
    assert not any(row.get("__rescued") for row in found)
    kept = [{key: value for key, value in row.items() if not key.startswith("__")} for row in found]
    return sorted(kept, key=repr)


def of_source(server: Cluster, database: str, name: str) -> list[dict[str, Any]]:
    names = [
        row[0]
        for row in server.execute(
            database,
            "select attname::text from pg_attribute where attrelid = %s::regclass and attnum > 0 order by attnum",
            [name],
        )
    ]
    # A session of the database's, as its users have one.
    found = server.execute(database, f"select {', '.join(CAST.get(each, each) for each in names)} from {name}")
    return sorted((dict(zip(names, row, strict=True)) for row in found), key=repr)


def is_like_source(server: Cluster, database: str, file: Path, names: list[str]) -> None:
    for name in names:
        assert of_lake(file, name) == of_source(server, database, name), name


def money_type(file: Path) -> str:
    fields = DeltaTable(str(lake_path(load(file), TABLES["amounts"]))).schema().fields
    return str(next(each.type for each in fields if each.name == "m"))


def reconciled(program: Program, file: Path) -> dict[str, Any]:
    done = program.run("reconcile", file, "--json")
    assert done.stdout, done.stderr[-3000:]
    return {name.removeprefix("public."): table["state"] for name, table in json.loads(done.stdout)["tables"].items()}


@pytest.mark.parametrize(
    ("locale", "plugin", "places", "later"),
    [("bg_BG", "decoderbufs", 2, "ar_KW"), ("ar_KW", "pgoutput", 3, "ja_JP"), ("ja_JP", "wal2json", 0, "bg_BG")],
)
def test_amounts_by_snapshot_and_stream(
    server: Cluster, program: Program, tmp_path: Path, locale: str, plugin: str, places: int, later: str
) -> None:
    if plugin != "pgoutput" and server.flavour != "debian15":
        plugin = "pgoutput"
    database = server.database("money")
    server.execute(database, f"alter database {database} set lc_monetary = '{locale}.utf8'")
    server.execute(database, SCHEMA)
    server.execute(database, ROWS.format(first=0))
    names = [name for name in TABLES if plugin != "decoderbufs" or name != "lists"]
    settings = {
        "plugin.name": plugin,
        "table.include.list": ",".join(f"public.{name}" for name in names),
        "publication.autocreate.mode": "filtered",
        **lake_settings(tmp_path),
    }
    file = write_properties(tmp_path / "c.properties", server.properties(database, **settings))
    assert program.stream(file).returncode == 0
    is_like_source(server, database, file, names)
    assert money_type(file) == f'PrimitiveType("decimal(19,{places})")'
    server.execute(database, ROWS.format(first=100))
    server.execute(database, CHANGES)
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    is_like_source(server, database, file, names)
    assert reconciled(program, file) == dict.fromkeys(names, "equal")
    lake = DeltaTable(str(lake_path(load(file), TABLES["amounts"])))
    lake.update(predicate="id = 5", updates={"m": f"cast(m / 10 as decimal(19, {places}))"})
    assert reconciled(program, file) == {**dict.fromkeys(names, "equal"), "amounts": "different"}
    # The amounts of all rows are others, though none was written.
    server.execute(database, f"alter database {database} set lc_monetary = '{later}.utf8'")
    server.execute(database, "update keyed set v = 'x'; update bare set v = 'x' where m < 1002::money")
    done = program.stream(file)
    assert done.returncode == 0, done.stderr[-3000:]
    is_like_source(server, database, file, names)
    assert reconciled(program, file) == dict.fromkeys(names, "equal")


def scale(server: Cluster, database: str, **role: Any) -> int:
    """Return the decimals that wal2lake reads from the catalogue."""
    options = options_for(server, database, **role)
    with connect(options) as connection:
        types = TypeCatalog(connection)
        types.load([MONEY])
        known = types[MONEY].scale
        assert known is not None
        assert connection.execute("show lc_monetary").fetchone() == ("C",)
    with connect(options, replication=True) as connection:
        assert connection.execute("select (-1234.5)::money::text").fetchone() == ("-$1,234.50",)
    return known


def test_decimals_are_the_database_s_whatever_role_and_environment_have(
    server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = server.database("money")
    monkeypatch.setenv("PGOPTIONS", "-c lc_monetary=ar_KW.utf8")
    assert scale(server, database) == 2
    server.execute(database, "create role reader login superuser password 'secret'")
    reader = {"database_user": "reader", "database_password": Secret("secret")}
    try:
        server.execute(database, "alter role reader set lc_monetary = 'ja_JP.utf8'")
        assert scale(server, database, **reader) == 2
        server.execute(database, "alter role all set lc_monetary = 'ar_KW.utf8'")
        assert scale(server, database, **reader) == 3
        server.execute(database, f"alter database {database} set lc_monetary = 'bg_BG.utf8'")
        assert scale(server, database, **reader) == 2
        server.execute(database, f"alter role reader in database {database} set lc_monetary = 'ar_KW.utf8'")
        assert scale(server, database, **reader) == 2
        server.execute(database, f"alter role all reset lc_monetary; alter database {database} reset lc_monetary")
        server.restart(settings={"lc_monetary": "ar_KW.utf8"})
        assert scale(server, database, **reader) == 3
        # Without the attribute it may not open the connection that shows the server's.
        server.execute(database, "alter role reader nosuperuser noreplication")
        with pytest.raises(SourceError, match="role reader has an lc_monetary of its own"):
            decimals_of(server, database, reader)
        server.execute(database, f"alter database {database} set lc_monetary = 'C'")
        assert decimals_of(server, database, reader) == 2
    finally:
        server.restart(settings={"lc_monetary": "C"})
        server.execute(database, "alter role all reset lc_monetary")


def decimals_of(server: Cluster, database: str, role: dict[str, Any]) -> int:
    with connect(options_for(server, database, **role)) as connection:
        return decimals(connection)


def test_a_locale_that_the_server_does_not_have(server: Cluster) -> None:
    database = server.database("money")
    server.execute(database, f"alter database {database} set lc_monetary = 'ja_JP.utf8'")
    folder = Path(server.environment["LOCPATH"]) / "ja_JP.utf8"
    folder.rename(folder.with_name("hidden"))
    try:
        server.restart()
        with pytest.raises(SourceError, match=r"does not have the locale ja_JP\.utf8"):
            decimals_of(server, database, {})
    finally:
        folder.with_name("hidden").rename(folder)
        server.restart()


def test_check_names_columns_in_which_amounts_are_text(server: Cluster) -> None:
    database = server.database("money")
    server.execute(database, "create type pair as (n int, m money); create type span as range (subtype = money)")
    server.execute(database, "create table told (id int primary key, p pair, ps pair[], s span, m money, ms money[])")
    options = options_for(server, database)
    for locale, told in (("bg_BG", []), ("ar_KW", ["public.told.p", "public.told.ps", "public.told.s"])):
        server.execute(database, f"alter database {database} set lc_monetary = '{locale}.utf8'")
        findings = run_checks(options, lambda name: name.table == "told")
        mine = [finding.found for finding in findings if finding.check == "amounts of money"]
        assert len(mine) == bool(told) and all(", ".join(told) in text for text in mine), findings
