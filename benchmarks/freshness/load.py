"""A paced load on equal tables, in a process of its own, that writes down what it committed.

    python -m benchmarks.freshness.load SPEC.json

One connection writes, so commits are strictly ordered, and a transaction is one round trip:

    begin; changes; select WAL end, clock;  commit;  select WAL end, clock

The first WAL end is read after the transaction's last change: nothing but the commit record follows, so it is the
commit LSN unless the server itself wrote in between, and never above it. The next transaction's is above this one's
second WAL end. A lake table that is merged to an LSN at or above a transaction's first WAL end has thus reached its
commit. The clock is the server's, which is this machine's, read before the commit: freshness is never understated.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg

from benchmarks.freshness.figures import Changes

COLUMNS = """
    id         bigint primary key,
    name       text not null,
    amount     numeric(12, 2) not null,
    changed_at timestamptz not null,
    active     boolean not null,
    attributes jsonb not null,
    quantity   integer not null,
    note       text
"""
_VALUES = """
    select id, 'name of row number ' || id, mod(id, 100000) / 100.0, clock_timestamp(), mod(id, 3) = 0,
           jsonb_build_object('group', mod(id, 97), 'tags', jsonb_build_array('a', mod(id, 7))), mod(id, 1000)::int,
           case when mod(id, 4) <> 0 then 'a note of some length on row ' || id end
"""
_UPDATE = """
    set amount = amount + 0.01, changed_at = clock_timestamp(), quantity = quantity + 1, active = not active,
        note = case when mod(quantity, 4) <> 0 then 'changed ' || quantity || ' times' end
    where id = any(%s)
"""
_WAL_END = "select (pg_current_wal_insert_lsn() - '0/0')::bigint, extract(epoch from clock_timestamp())::float8"
_STATEMENT_SECONDS = 120


def create_table(name: str, rows: int, alter: str = "") -> str:
    """SQL that makes and fills a table with the keys 1 to ``rows``; ``alter``: actions of ALTER TABLE before that."""
    fill = f"insert into {name} {_VALUES} from generate_series(1, {rows}) id"
    altered = f"alter table {name} {alter};" if alter else ""
    return f"create table {name} ({COLUMNS}); {altered} {fill}; analyze {name}"


class Part(NamedTuple):
    """A transaction's changes in one table, by key."""

    table: int
    inserts: list[int]
    updates: list[int]
    deletes: list[int]

    @property
    def changes(self) -> int:
        """How many."""
        return len(self.inserts) + len(self.updates) + len(self.deletes)


class Committed(NamedTuple):
    """A transaction that is done: when it was about to commit, and the WAL's end before and after."""

    time: float
    before: int
    after: int


class Writer:
    """One connection that commits transactions, each in one round trip. A context manager."""

    def __init__(self, conninfo: str, tables: Sequence[str]) -> None:
        self._tables = list(tables)
        self._connection = psycopg.connect(conninfo, autocommit=True, connect_timeout=10)
        self._connection.execute(f"set statement_timeout = '{_STATEMENT_SECONDS}s'")
        self._connection.prepared_max = None  # five statements a table, and up to hundreds of tables

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()

    def commit(self, parts: Sequence[Part]) -> Committed:
        """Make the changes of ``parts`` in one transaction."""
        with self._connection.pipeline():
            self._connection.execute("begin")
            for part in parts:
                self._change(part)
            before = self._connection.execute(_WAL_END, prepare=True)
            self._connection.execute("commit")
            after = self._connection.execute(_WAL_END, prepare=True)
        (lsn_before, at), (lsn_after, _) = before.fetchall()[0], after.fetchall()[0]
        return Committed(at, lsn_before, lsn_after)

    def _change(self, part: Part) -> None:
        name = self._tables[part.table]
        if part.deletes:
            self._connection.execute(f"delete from {name} where id = any(%s)", [part.deletes], prepare=True)
        if part.updates:
            self._connection.execute(f"update {name} {_UPDATE}", [part.updates], prepare=True)
        if part.inserts:
            statement = f"insert into {name} {_VALUES} from unnest(%s::bigint[]) id"
            self._connection.execute(statement, [part.inserts], prepare=True)


class Mix:
    """Draws changes of tables whose keys it knows: half updates, a quarter inserts, a quarter deletes; or updates only.

    Not for tables that anybody else inserts into or deletes from.
    """

    def __init__(self, tables: int, rows: int, seed: int, updates_only: bool = False) -> None:
        self._random = random.Random(seed)
        self._updates_only = updates_only
        # A range is enough where no key comes or goes, and takes no memory for millions of them.
        self._live: list[Any] = [
            range(1, rows + 1) if updates_only else list(range(1, rows + 1)) for _ in range(tables)
        ]
        self._next = [rows + 1] * tables

    def part(self, table: int, changes: int) -> Part:
        """``changes`` of one table; fewer where a key was drawn twice."""
        live, inserts, deletes, updates = self._live[table], [], [], set()
        for _ in range(changes):
            kind = 0.0 if self._updates_only else self._random.random()
            if kind >= 0.75 and len(live) > 1:
                place = self._random.randrange(len(live))
                live[place], live[-1] = live[-1], live[place]
                deletes.append(live.pop())
            elif kind >= 0.5:
                inserts.append(self._next[table])
                self._next[table] += 1
            else:
                updates.add(live[self._random.randrange(len(live))])
        if inserts:
            live.extend(inserts)
        return Part(table, inserts, sorted(updates.difference(deletes)), deletes)

    def transaction(self, most: int) -> list[Part]:
        """1 to ``most`` changes in one to three tables."""
        changes = self._random.randint(1, most)
        tables = self._random.sample(range(len(self._live)), min(len(self._live), changes, self._random.randint(1, 3)))
        shares = [changes // len(tables) + (place < changes % len(tables)) for place in range(len(tables))]
        # Sorted, as an application locks its tables in one order.
        parts = [self.part(table, share) for table, share in sorted(zip(tables, shares, strict=True))]
        return [part for part in parts if part.changes]


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """A load: its tables hold the keys 1 to ``rows`` when it starts."""

    conninfo: str
    tables: list[str]
    rows: int
    changes_a_second: float
    seconds: float
    output: str
    most_a_transaction: int = 20
    updates_only: bool = False
    seed: int = field(default=1)

    def write(self, path: Path) -> Path:
        """As the file that ``python -m benchmarks.freshness.load`` reads."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path


def run(spec: LoadSpec) -> None:
    """Load for ``spec.seconds`` and write a line for each (transaction, table) to ``spec.output``.

    A load that a busy server holds up goes on as fast as it can until it is back at its rate.
    """
    mix = Mix(len(spec.tables), spec.rows, spec.seed, spec.updates_only)
    done, started = 0, time.monotonic()
    with Writer(spec.conninfo, spec.tables) as writer, Path(spec.output).open("w", newline="") as file:
        lines = csv.writer(file)
        while (elapsed := time.monotonic() - started) < spec.seconds:
            early = done / spec.changes_a_second - elapsed
            if early > 0:
                time.sleep(min(early, spec.seconds))
            parts = mix.transaction(spec.most_a_transaction)
            committed = writer.commit(parts)
            lines.writerows((committed.time, committed.before, part.table, part.changes) for part in parts)
            done += sum(part.changes for part in parts)


def read_changes(path: Path) -> Changes:
    """What a load wrote to its output."""
    with path.open(newline="") as file:
        lines = list(csv.reader(file))
    return Changes(
        np.array([float(line[0]) for line in lines]),
        np.array([int(line[1]) for line in lines], dtype=np.int64),
        np.array([int(line[2]) for line in lines], dtype=np.int64),
        np.array([int(line[3]) for line in lines], dtype=np.int64),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=Path)
    try:
        run(LoadSpec(**json.loads(parser.parse_args().spec.read_text(encoding="utf-8"))))
    except KeyboardInterrupt:
        sys.exit(1)
