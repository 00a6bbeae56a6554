"""Lakes that releases have written, kept in tests/data/lakes: what a later release has to read and to continue.

    python -m tests.support.recorded_lake            # records tests/data/lakes/<version>.tar.gz, before its tag

An archive has ``shop``, the folder of the lake, and ``contents.json``: what ``wal2lake.open`` read when it was
recorded.
The SQL of an archive stays as it is as long as the archive does: a release that wants other tables adds them.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import wal2lake
from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties
from tests.support.program import Program

FOLDER = Path(__file__).parents[1] / "data" / "lakes"
LARGEST = 200_000  # bytes of an archive
PREFIX = "shop"
TABLES = ("hard", "soft", "past", "keyless")

SCHEMA = """
create table hard (id int primary key, n numeric(10, 2), note text, at timestamptz, tags text[], doc jsonb);
create table soft (id int primary key, n numeric(10, 2), note text);
create table past (id int primary key, n numeric(10, 2), note text);
create table keyless (id int, n numeric(10, 2), note text);
alter table keyless replica identity full;
"""
FILL = """
insert into hard select g, g * 1.5, repeat('x', g), timestamptz '2026-01-01' + g * interval '1 hour',
  array['a', null, g::text], jsonb_build_object('g', g) from generate_series(1, 20) g;
insert into soft select g, g, 'first' from generate_series(1, 20) g;
insert into past select g, g, 'first' from generate_series(1, 20) g;
insert into keyless select g % 5, g, 'first' from generate_series(1, 20) g;
"""
CHANGES = (
    "update {table} set n = n + 100, note = 'second' where id in (2, 3); delete from {table} where id = 4;",
    "insert into {table} (id, n, note) values (21, 'NaN', 'not a number'), (22, -1, 'negative');",
    "alter table {table} rename column note to remark; alter table {table} add column late int default 7;",
    "update {table} set remark = 'third', late = 8 where id in (2, 5);",
)
RULES = "rules:\n  - name: positive\n    condition: n >= 0\n    description: n is not negative\n"


def archives() -> list[Path]:
    """The recorded lakes, by version."""
    return sorted(FOLDER.glob("*.tar.gz"))


def settings(folder: Path) -> dict[str, str]:
    """The connector's settings when it is recorded and when it is continued."""
    return {
        **lake_settings(folder),
        "topic.prefix": PREFIX,
        "schema.include.list": "public",
        "wal2lake.lake.delete.mode.soft": "public.soft",
        "wal2lake.lake.delete.mode.history": "public.past",
        "wal2lake.lake.features": "modern",
        "wal2lake.merge.rewrite.max.bytes": "1",  # rows are marked in deletion vectors
    }


def contents(lake: Path) -> dict[str, Any]:
    """What a lake's readers return, in a form that JSON keeps."""
    opened = wal2lake.open(lake)
    named = [f"public.{name}" for name in TABLES]
    return {
        "rows": {name: plain(opened.read(name)[name].arrow()) for name in named},
        "all rows": {name: plain(opened.read(name, all_rows=True)[name].arrow()) for name in named},
        "changes": {name: plain(opened.changes(name).arrow()) for name in named},
    }


def plain(table: Any) -> list[dict[str, Any]]:
    """The rows with values that JSON has, in an order of their own."""
    texts = sorted(json.dumps(row, default=str, sort_keys=True) for row in table.to_pylist())
    return [json.loads(text) for text in texts]


def extracted(archive: Path, folder: Path) -> dict[str, Any]:
    """Unpack a lake to ``folder``/lake/shop; returns what was read when it was recorded."""
    with tarfile.open(archive, "r:gz") as packed:
        packed.extractall(folder / "lake", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    recorded: dict[str, Any] = json.loads((folder / "lake" / "contents.json").read_text(encoding="utf-8"))
    return recorded


def record(archive: Path) -> int:
    """Write a lake and its contents into ``archive``; returns its size in bytes."""
    cluster, program = Cluster.start("debian15"), Program()
    try:
        # Not in a folder of root's: the server is another account's.
        with tempfile.TemporaryDirectory(prefix="wal2lake-recorded-") as made:
            folder = Path(made)
            _write(cluster, program, folder)
            lake = folder / "lake"
            (lake / "contents.json").write_text(json.dumps(contents(lake / PREFIX), indent=1), encoding="utf-8")
            archive.parent.mkdir(exist_ok=True)
            with tarfile.open(archive, "w:gz") as packed:
                packed.add(lake / PREFIX, PREFIX)
                packed.add(lake / "contents.json", "contents.json")
    finally:
        program.close()
        cluster.stop()
    return archive.stat().st_size


def _write(cluster: Cluster, program: Program, folder: Path) -> None:
    database = cluster.database("recorded")
    rules = folder / "rules"
    rules.mkdir()
    (rules / "public.soft.yaml").write_text(RULES, encoding="utf-8")
    more = {**settings(folder), "wal2lake.quality.rules.path": str(rules)}
    file = write_properties(folder / "shop.properties", cluster.properties(database, **more))
    cluster.execute(database, SCHEMA + FILL)
    for change in ("", *CHANGES):
        for table in TABLES if change else ():
            cluster.execute(database, change.format(table=table))
        done = program.stream(file)
        if done.returncode != 0:
            raise RuntimeError(f"the run ended with {done.returncode}: {done.stderr[-3000:]}")


if __name__ == "__main__":
    written = FOLDER / f"{wal2lake.__version__}.tar.gz"
    size = record(written)
    print(f"{written}: {size:,} bytes")
    sys.exit(0 if size <= LARGEST else f"an archive may have {LARGEST:,} bytes")
