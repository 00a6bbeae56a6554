"""What the soak does to the source: rows, keys, tables, truncates, signals, large transactions; some rolled back."""

from __future__ import annotations

import contextlib
import json
import random
import threading

import psycopg

from tests.support.cluster import Cluster
from tests.support.random_ddl import RandomDdl

TABLES = ("t1", "t2", "t3")
SIGNALS = "signals"
LARGE_ROWS = 20_000
# What a lake follows by itself. The others pause a table until somebody decides, or need privileges.
_FOLLOWED = ("add", "add constant", "add volatile", "drop", "rename", "default", "full", "identity full",
             "identity default", "label", "truncate", "comment")  # fmt: skip


class Work(RandomDdl):
    """Random statements on ``TABLES`` and on ``accounts``; goes on after the server was away."""

    def __init__(self, pg: Cluster, database: str, seed: int, large_rows: int = LARGE_ROWS) -> None:
        super().__init__(pg, database, seed, TABLES, publication=database)
        self._large_rows = large_rows
        self._pg, self._database = pg, database
        self.counted: dict[str, int] = {}

    def setup(self) -> None:
        """Make the tables."""
        super().setup()
        for text in (
            "create table accounts (id int primary key, n int, v text)",
            "insert into accounts select g, 0, 'v' from generate_series(1, 50) g",
            "create table entries (id bigserial primary key, n int)",
            f"create table {SIGNALS} (id varchar(60) primary key, type varchar(32) not null, data varchar(2048))",
        ):
            self.session.execute(text.encode())

    def step(self) -> None:
        """Do something; what the server refuses, because it is away for example, changes nothing."""
        with contextlib.suppress(psycopg.Error):
            self.connect()
            name = self.random.choice(["rows"] * 8 + ["ddl"] * 2 + ["key"] * 2 + ["large", "signal", "savepoints"])
            self.counted[name] = self.counted.get(name, 0) + 1
            getattr(self, f"_do_{name}")()

    def connect(self) -> None:
        """Open another session where the server has ended this one. Raises psycopg.Error."""
        if self.session.closed:
            self.session = self._pg.connect(
                self._database, options="-c statement_timeout=20000", prepare_threshold=None
            )

    def _ddl(self, count: int) -> list[str]:
        return [self.random.choice(_FOLLOWED) for _ in range(count)]

    def _do_rows(self) -> None:
        table = self.random.choice(self.tables)
        for verb in self._rows(self.random.randint(1, 4)):
            self._step(verb, table)

    def _do_ddl(self) -> None:
        table = self.random.choice(self.tables)
        with self.session.transaction() if self.random.random() < 0.3 else contextlib.nullcontext():
            for verb in (*self._rows(1), *self._ddl(1), *self._rows(1)):
                self._step(verb, table)

    def _do_key(self) -> None:
        low = self.random.randint(1, 10_000)
        self._run(f"update accounts set id = id + {low} where id % 7 = {low % 7} and id < 1000000")
        self._run("insert into accounts select g, 0, 'new' from generate_series(1, 50) g on conflict (id) do nothing")
        self._run("delete from accounts where id > 50000")

    def _do_large(self) -> None:
        first = self.random.randint(1_000_000, 2_000_000_000 - self._large_rows)
        self._run("begin")
        self._run(f"insert into accounts select g, 1, repeat('x', 100) from generate_series({first}, "
                  f"{first + self._large_rows - 1}) g on conflict (id) do nothing")  # fmt: skip
        self._run(f"update accounts set n = n + 1 where id > {first} and id % 3 = 0")
        self._run("delete from accounts where id > 1000000" if self.random.random() < 0.5 else "select 1")
        self._run(self.random.choice(["commit", "commit", "rollback"]))

    def _do_savepoints(self) -> None:
        self._run("begin")
        for number in range(self.random.randint(1, 6)):
            self._run(f"savepoint s{number}")
            self._run("insert into accounts select g, 2, repeat('y', 200) from generate_series(300000, 301000) g "
                      "on conflict (id) do update set n = accounts.n + 1")  # fmt: skip
            if self.random.random() < 0.5:
                self._run(f"rollback to s{number}")
        self._run("commit")

    def _do_signal(self) -> None:
        table = self.random.choice([*self.tables, "accounts"])
        data = json.dumps({"type": "incremental", "data-collections": [f"public.{table}"]})
        self.session.execute(
            f"insert into {SIGNALS} values (gen_random_uuid()::text, 'execute-snapshot', %s)".encode(), [data]
        )

    def _run(self, text: str) -> None:
        self.session.execute(text.encode())


class Load(threading.Thread):
    """Small transactions without a pause worth mentioning, on a table of their own."""

    def __init__(self, pg: Cluster, database: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._pg, self._database, self._seed = pg, database, seed
        self._dice = random.Random(seed)
        self.stopped = threading.Event()

    def again(self) -> Load:
        """Another thread that goes on with the same."""
        return Load(self._pg, self._database, self._seed + 1)

    def run(self) -> None:
        """Go on until ``stopped``; reconnect when the server is back."""
        while not self.stopped.wait(0.1):
            with contextlib.suppress(psycopg.Error), self._pg.connect(self._database) as session:
                while not self.stopped.wait(0.02):
                    session.execute("insert into entries (n) values (0)")
                    session.execute(
                        "update entries set n = n + 1 where id > (select max(id) from entries) - %s",
                        [self._dice.randint(1, 30)],
                    )
                    session.execute("delete from entries where id % 17 = 0")
