"""Random sessions on a real server, and a reader of everything that a slot sends of them, to compare two slots."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import psycopg

from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.pgoutput.in_progress import InProgressTranslator
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.replication import slot
from cdc_core.postgres.replication.stream import ReplicationStream
from tests.support.decode_compare import table_of
from tests.support.waits import wait_until

_FACTS = ("lsn", "commit_lsn", "tx_index", "prior_end_lsn", "xid", "commit_ts_us", "origin")

Found = dict[tuple[Any, ...], tuple[Any, ...]]


@dataclass
class Reader:
    """One slot. Everything that was read has its place in the stream as its key: what is sent again must be equal."""

    options: PostgresOptions
    found: Found = field(default_factory=dict)
    blocks: int = 0
    prepared: int = 0

    def __post_init__(self) -> None:
        with connect(self.options, replication=True) as replication:
            slot.create(replication, self.options.slot_name)
        self.state = StreamState()
        self._open()

    def _open(self) -> None:
        self.stream = ReplicationStream(self.options)
        self.translator = InProgressTranslator(memory_bytes=20_000)
        self.state = self.state.after_reconnect()

    def close(self) -> None:
        self.stream.close()
        self.translator.close()

    def reconnect(self) -> None:
        """What was not confirmed is sent again; what is in progress always."""
        self.close()
        self._open()

    def read(self, rows: int, seconds: float = 0.0) -> bool:
        """Read some frames; returns whether there were any."""
        segment = self.stream.read(rows, 1 << 20, seconds)
        if segment is None:
            return False
        starts = [25, *(int(end) + 25 for end in segment.ends[:-1])]
        self.blocks += sum(segment.buffer[at] == ord("S") for at in starts)
        self.prepared += sum(segment.buffer[at] in b"Pp" for at in starts)
        for each in self.translator.feed(segment):
            found = sort_segment(each, self.state, lambda relation, xid: table_of(relation))
            for run in found.runs:
                for row in run.raw.to_pylist():
                    self._note(("row", row["commit_lsn"], row["tx_index"]), (*map(row.get, _FACTS), row["payload"]))
            for cut in found.truncates:
                facts = tuple(getattr(cut, name) for name in _FACTS)
                self._note(("truncate", cut.commit_lsn, cut.tx_index), (*facts, cut.tables, cut.options))
            for one in found.messages:
                facts = tuple(getattr(one, name) for name in _FACTS)
                self._note(("message", one.lsn), (*facts, one.transactional, one.prefix, one.content))
            for mark in found.transactions.to_pylist():
                seen = dict(mark, seq=None, lsn=mark["lsn"] if mark["kind"] == ord("C") else None)
                self._note(("mark", mark["kind"], mark["commit_lsn"]), tuple(seen.items()))
            if found.last_commit_end_lsn is not None:
                self.stream.confirm(found.last_commit_end_lsn)
        return True

    def _note(self, place: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        assert self.found.setdefault(place, value) == value

    def read_to(self, lsn: int) -> None:
        """Read up to an LSN at which no transaction is open."""
        wait_until(lambda: not self.read(5000, 0.05) and self.stream.wal_end >= lsn, 60, "the stream to reach its end")


class Session:
    """A connection with a transaction, its savepoints, and a table of its own, which it alters."""

    def __init__(self, number: int, connection: psycopg.Connection[Any], dice: random.Random) -> None:
        self.own = f"own_{number}"
        self.dice = dice
        self.connection = connection
        self.depth = 0
        self.columns = 0
        self.is_open = False

    def step(self) -> None:
        """Do anything."""
        if not self.is_open:
            self._run("begin")
            self.is_open, self.depth = True, 0
        do = self.dice.choice(
            [self._insert, self._insert, self._insert, self._shared, self._update, self._delete, self._savepoint,
             self._rollback_to, self._release, self._truncate, self._alter, self._message, self._caught, self._end]
        )  # fmt: skip
        do()

    def finish(self, word: str = "commit") -> None:
        """End the transaction."""
        if self.is_open:
            self._run(word)
            self.is_open = False

    def _run(self, text: str) -> None:
        self.connection.execute(text.encode())

    def _insert(self) -> None:
        count = self.dice.choice([1, 3, 400])
        self._run(f"insert into {self.own} (v) select repeat(md5(g::text), 8) from generate_series(1, {count}) g")

    def _shared(self) -> None:
        self._run(f"insert into shared (v, big) select g::text, repeat('x', {self.dice.choice([1, 5000])}) "
                  f"from generate_series(1, {self.dice.choice([1, 50])}) g")  # fmt: skip

    def _update(self) -> None:
        self._run(f"update {self.own} set v = v || 'u' where id % 3 = {self.dice.randrange(3)}")

    def _delete(self) -> None:
        self._run(f"delete from {self.own} where id % 5 = {self.dice.randrange(5)}")

    def _savepoint(self) -> None:
        self.depth += 1
        self._run(f"savepoint s{self.depth}")

    def _rollback_to(self) -> None:
        if self.depth:
            self.depth = self.dice.randint(1, self.depth)
            self._run(f"rollback to s{self.depth}")

    def _release(self) -> None:
        if self.depth:
            self.depth = self.dice.randint(1, self.depth)
            self._run(f"release s{self.depth}")
            self.depth -= 1

    def _truncate(self) -> None:
        if self.dice.random() < 0.3:
            self._run(f"truncate {self.own}")

    def _alter(self) -> None:
        self.columns += 1
        self._run(f"alter table {self.own} add column c_{self.columns}_{self.dice.randrange(10**9)} int default 7")
        self._run(f"insert into {self.own} (v) values ('altered')")

    def _message(self) -> None:
        # After a row of the same subtransaction: see docs/reliability.md.
        self._run(f"insert into {self.own} (v) values ('before a message')")
        self._run("select pg_logical_emit_message(true, 'inside', repeat('m', 3000))")
        self._run("select pg_logical_emit_message(false, 'outside', 'm')")

    def _caught(self) -> None:
        self._run(f"do $$ begin insert into {self.own} (v) select 'lost' from generate_series(1, 300); "
                  "perform 1 / 0; exception when division_by_zero then null; end $$")  # fmt: skip

    def _end(self) -> None:
        if self.dice.random() < 0.6:
            self.finish("commit" if self.dice.random() < 0.75 else "rollback")
