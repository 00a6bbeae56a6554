"""What is large in another way than many rows: rows of 100 MB, 1,600 columns, 1,000 tables, a large keyless table.

    python -m benchmarks.macro.sizes                          # all of them
    python -m benchmarks.macro.sizes --only rows,columns
    python -m benchmarks.macro.sizes --quick                  # small: proves that it runs

Each case is a first snapshot and then some transactions, each read by the command line with its defaults; after each
the lake is compared with the source. Beside a snapshot psql copies the same tables into /dev/null, beside a transaction
pg_recvlogical reads the same WAL through a copy of the slot.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.macro.measured import SECONDS, Measured, measured, recvlogical
from benchmarks.macro.stream import drop_slot
from benchmarks.server import bench_server
from cdc_core.schema.table import TableId
from tests.support.cluster import Cluster
from tests.support.lake import difference, write_properties


@dataclass(frozen=True, slots=True)
class Case:
    """Tables, the SQL that creates and fills them, and (name, SQL) of each transaction."""

    tables: list[str]
    create: str
    transactions: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Figures:
    """One command. ``beside`` are the seconds of COPY or pg_recvlogical for the same rows."""

    case: str
    step: str
    beside: float
    run: Measured


def large_rows(quick: bool) -> Case:
    """Rows of 100 MB that do not compress away: text, and bytea (as hex: two characters a byte), keyed and FULL."""
    values = (300 if quick else 3_000) * 1_000  # md5 values, of 32 characters each
    pieces = f"(select string_agg(md5((g + r)::text), '') from generate_series(1, {values}) g)"
    half = f"(select string_agg(decode(md5((g + r)::text), 'hex'), '') from generate_series(1, {values}) g)"
    create = f"""
    create table texts (id int primary key, n int, v text);
    create table bytes (id int primary key, n int, v bytea);
    create table whole (id int, n int, v text);
    create table small (id int primary key, n int);
    alter table texts alter v set storage external;
    alter table bytes alter v set storage external;
    alter table whole replica identity full;
    insert into texts select r, 0, {pieces} from generate_series(1, 4) r;
    insert into bytes select r, 0, {half} from generate_series(1, 2) r;
    insert into whole select r, 0, {pieces} from generate_series(1, 2) r;
    insert into small select g, g from generate_series(1, 1000) g;
    """
    inserts = f"""
    insert into texts select r, 0, {pieces} from generate_series(5, 8) r;
    insert into bytes select r, 0, {half} from generate_series(3, 4) r;
    insert into whole select r, 0, {pieces} from generate_series(3, 4) r;
    update small set n = n + 1;
    """
    updates = """
    update texts set v = v || 'x' where id % 2 = 0;
    update texts set n = 1 where id % 2 = 1;
    update bytes set v = v || '\\x00' where id % 2 = 0;
    update bytes set n = 1 where id % 2 = 1;
    update whole set v = v || 'x' where id % 2 = 0;
    update whole set n = 1 where id % 2 = 1;
    """
    deletes = "".join(f"delete from {name} where id % 3 = 1;" for name in ("texts", "bytes", "whole"))
    steps = [("4 + 2 + 2 inserts", inserts), ("an update of every row", updates), ("deletes", deletes)]
    return Case(["texts", "bytes", "whole", "small"], create, steps)


def many_columns(quick: bool) -> Case:
    """1,600 columns, the most that PostgreSQL has, one of them dropped and added: texts, integers, numerics, nulls."""
    rows = 20 if quick else 2_000
    names = [f"c{number}" for number in range(1, 1599)]
    kinds = ["text", "int", "numeric(12,2)"]
    columns = ", ".join(f"{name} {kinds[number % 3]}" for number, name in enumerate(names))
    # A line of 1,600 varlena pointers would not fit into a page: those are few enough here.
    value = [
        "case when (g + {n}) % 2 = 0 then 'v' || g end",
        "nullif(g % {m}, 1)",
        "case when (g + {n}) % 3 = 0 then g / 7.0 end",
    ]
    made = ", ".join(value[number % 3].format(n=number, m=number % 7 + 2) for number in range(len(names)))
    create = f"""
    create table wide (id int primary key, {columns});
    insert into wide select g, {made} from generate_series(1, {rows}) g;
    """
    inserted = f"insert into wide select g, {made} from generate_series({rows + 1}, {2 * rows}) g"
    texts = f"update wide set c4 = repeat(md5(id::text), 3), c7 = null, c1501 = '{'x' * 100}'"
    added = (
        "alter table wide drop column c1598; alter table wide add column added text default 'd';"
        "update wide set c1 = 'b', c4 = null, added = null where id % 5 = 0; delete from wide where id % 7 = 0"
    )
    return Case(
        ["wide"],
        create,
        [
            ("as many inserts", inserted),
            ("an update of every row", texts),
            ("a column dropped, one added, updates, deletes", added),
        ],
    )


def many_tables(quick: bool) -> Case:
    """1,000 tables of 100 rows, of which one transaction changes 20 rows each."""
    names = [f"t{number:04d}" for number in range(100 if quick else 1_000)]
    create = "".join(
        f"create table {name} (id int primary key, n int, v text);"
        f"insert into {name} select g, g, md5(g::text) from generate_series(1, 100) g;"
        for name in names
    )
    changes = "".join(
        f"update {name} set n = n + 1 where id <= 10; delete from {name} where id between 11 and 15;"
        f"insert into {name} select 1000 + g, g, 'new' from generate_series(1, 5) g;"
        for name in names
    )
    again = "".join(f"update {name} set v = 'again' where id <= 20;" for name in names)
    return Case(names, create, [("20 changes in each", changes), ("20 updates in each", again)])


def keyless(quick: bool) -> Case:
    """A table without a key, REPLICA IDENTITY FULL, of which many rows are equal."""
    rows = 20_000 if quick else 1_000_000
    create = f"""
    create table keyless (a int, b text, c numeric, d timestamp, e text);
    alter table keyless replica identity full;
    insert into keyless select g % {rows // 2}, md5((g % {rows // 2})::text), 1.5, '2024-01-01', repeat('e', 40)
      from generate_series(1, {rows}) g;
    """
    return Case(
        ["keyless"],
        create,
        [
            ("an update of every row", "update keyless set c = c + 1, b = md5(b)"),
            ("delete of half", "delete from keyless where a % 2 = 0"),
            ("as many inserts", f"insert into keyless select g, 'b', 2, null, 'e' from generate_series(1, {rows}) g"),
        ],
    )


CASES: dict[str, Callable[[bool], Case]] = {
    "rows": large_rows,
    "columns": many_columns,
    "tables": many_tables,
    "keyless": keyless,
}


def measure(cluster: Cluster, folder: Path, name: str, case: Case, extra: dict[str, str]) -> list[Figures]:
    """Take the snapshot and then the transactions one after another."""
    database = cluster.database(name)
    _in_one_transaction(cluster, database, case.create, folder)
    home = folder / name
    home.mkdir()
    settings = cluster.properties(
        database,
        **{
            "schema.include.list": "public",
            "wal2lake.lake.path": str(home / "lake"),
            "wal2lake.state.path": str(home / "state"),
            **extra,
        },
    )
    file = write_properties(home / "sizes.properties", settings)
    found = [Figures(name, "snapshot", _copied(cluster, database, case), measured(cluster, "snapshot", str(file)))]
    _check(file, case, found)
    for step, statements in case.transactions:
        slot = settings["slot.name"]
        cluster.execute(database, "select pg_copy_logical_replication_slot(%s, 'reference')", [slot])
        _in_one_transaction(cluster, database, statements, folder)
        reference = recvlogical(cluster, database, "reference", settings["publication.name"])
        drop_slot(cluster, database, "reference")
        found.append(Figures(name, step, reference, measured(cluster, "run", str(file), "--until-idle", "2")))
        _check(file, case, found)
    return found


def _in_one_transaction(cluster: Cluster, database: str, statements: str, folder: Path) -> None:
    script = folder / "script.sql"
    script.write_text(statements)
    cluster.psql(database, "-1", "-f", str(script), seconds=SECONDS)


def _copied(cluster: Cluster, database: str, case: Case) -> float:
    started = time.monotonic()
    commands = [part for table in case.tables for part in ("-c", f"copy {table} to stdout")]
    subprocess.run(
        [cluster.bin / "psql", "-X", "-q", "-d", cluster.conninfo(database), *commands],
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=SECONDS,
    )
    return time.monotonic() - started


def _check(file: Path, case: Case, found: list[Figures]) -> None:
    print(found[-1], file=sys.stderr, flush=True)
    different = difference(file, [TableId("public", name) for name in case.tables])
    if different:
        raise SystemExit(f"{found[-1].case}, {found[-1].step}: the lake differs from the source: {different[:3]}")


def main() -> None:
    """Measure and print a table; write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas: %(default)s")
    parser.add_argument("--quick", action="store_true", help="small: proves that it runs, measures nothing")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a connector property")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    extra = dict(pair.split("=", 1) for pair in arguments.set)
    found: list[Figures] = []
    for name in arguments.only.split(","):
        with bench_server() as (cluster, folder):
            found += measure(cluster, folder, name, CASES[name](arguments.quick), extra)
    _print(found)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=1))


def _print(found: list[Figures]) -> None:
    print("Seconds are those of the whole command. Beside a snapshot: COPY; beside a transaction: pg_recvlogical.")
    print("| case | step | s | beside, s | driver MB | Java MB | largest worker MB | cores of others |")
    print("|---|---|---|---|---|---|---|---|")
    for one in found:
        run = one.run
        print(
            f"| {one.case} | {one.step} | {run.seconds:.1f} | {one.beside:.1f} | {run.driver_mb:,.0f} "
            f"| {run.java_mb:,.0f} | {run.worker_mb:,.0f} | {run.others:.2f} |"
        )


if __name__ == "__main__":
    main()
