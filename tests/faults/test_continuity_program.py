"""Random histories of server, slot and connector file: a run brings the lake level with its source, or says why not.

Changes, runs, killed runs; the slot advanced, dropped, made anew or replaced by an earlier copy of itself; the server
restarted, promoted, or replaced by a backup of itself, which then goes another way; the connector's file pointed at
another server and back. After each run that ends with exit code 0 the lake equals the server that the file names.
Where one ends otherwise, its remedy is followed to the letter, and the lake equals it then. While nothing but what is
harmless happened, no run may fail and no table may be read again.

``WAL2LAKE_CONTINUITY_SEED`` sets the seed, ``WAL2LAKE_CONTINUITY_EXAMPLES`` how many examples (default 2),
``WAL2LAKE_CONTINUITY_STEPS`` how many steps each.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from cdc_core import failpoints
from cdc_core.config.connector import load
from cdc_core.schema.table import TableId
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import difference, lake_path, lake_settings, rows, write_properties
from tests.support.program import Program
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

SEED = sampling.seed(2611, "WAL2LAKE_CONTINUITY_SEED")
SETTINGS = settings(
    max_examples=int(os.environ.get("WAL2LAKE_CONTINUITY_EXAMPLES", "2")),
    stateful_step_count=int(os.environ.get("WAL2LAKE_CONTINUITY_STEPS", "8")),
    phases=(Phase.generate,),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TABLES = [TableId("public", name) for name in ("keyed", "kept", "keyless")]
SOFT = TABLES[1]
SCHEMA = """
create table keyed (id int primary key, v text, c text);
create table kept (id int primary key, v text);
create table keyless (id int, v text);
alter table keyless replica identity full;
"""
FILL = """
insert into keyed select g, 'first of {0}', repeat(md5(g::text || '{0}'), 100) from generate_series(1, 30) g;
insert into kept select g, 'first of {0}' from generate_series(1, 30) g;
insert into keyless select g % 5, 'first of {0}' from generate_series(1, 30) g;
"""
PLACES = (
    *(failpoints.BETWEEN_APPENDS, failpoints.AFTER_APPEND, failpoints.BEFORE_CONFIRM, failpoints.AFTER_CONFIRM),
    *(failpoints.DURING_MERGE, failpoints.AFTER_APPLY, failpoints.BEFORE_SNAPSHOT_COMMIT),
    *(failpoints.AFTER_SLOT_CREATED,),
)
_DROPS = re.compile(r"pg_drop_replication_slot\('(\w+)'\)")


class Continuity(RuleBasedStateMachine):
    """One connector, and the servers that its file may name. The servers, ``program`` and ``folder`` are the test's."""

    here: Cluster
    there: Cluster
    program: Program
    folder: Path

    @initialize(chance=st.integers(0, 2**32), mode=st.sampled_from(("initial", "initial", "when_needed")))
    def begin(self, chance: int, mode: str) -> None:
        """Both servers have the tables with rows of their own; the lake is level with the first."""
        self.random = random.Random(chance)
        self.log = [f"-- snapshot.mode={mode}"]
        self.mode, self.counter = mode, 0
        self.database = self.slot = f"continuity_{time.time_ns()}"
        for server, name in ((self.here, "here"), (self.there, "there")):
            server.database(name=self.database)
            server.execute(self.database, SCHEMA)
            server.execute(self.database, FILL.format(name))
        self.at = self.here
        self.own = self.folder / self.database
        self.own.mkdir()
        self.backup: Path | None = None
        self.harmless = True
        self._point(self.here)
        self.run()

    @rule(steps=st.integers(1, 5))
    def change(self, steps: int) -> None:
        """Transactions at the server that the file names."""
        for _ in range(steps):
            self._change(self.at)

    @rule()
    def run(self) -> None:
        """A run to the end of what there is, its remedy where it asks for one, and the comparison."""
        done = self.program.stream(self.file)
        self._say(f"run: {done.returncode}")
        read_again = "snapshot:" in done.stderr
        if done.returncode != 0:
            assert not self.harmless, self._told(done, "nothing but what is harmless happened")
            done = self._follow(done)
        elif read_again and len(self.log) > 2:
            assert not self.harmless, self._told(done, "read again, though nothing but what is harmless happened")
        assert done.returncode == 0, self._told(done, "the remedy did not work")
        found = difference(self.file, [table for table in TABLES if table != SOFT])
        assert found == [], self._told(done, str(found))
        shown = rows(lake_path(load(self.file), SOFT), "select id, v from t where not __deleted")
        wanted = Counter(self.at.execute(self.database, f"select id, v from {SOFT}"))
        assert Counter((row["id"], row["v"]) for row in shown) == wanted, self._told(done, str(SOFT))
        self.harmless = True

    @rule(place=st.sampled_from(PLACES), steps=st.integers(1, 4))
    def run_killed(self, place: str, steps: int) -> None:
        """A run that is killed where it comes to the place; what it says else is the next run's to say again."""
        self.change(steps)
        done = self.program.stream(self.file, place)
        self._say(f"run {place}: {done.returncode}")
        assert done.returncode in (0, 1, -signal.SIGKILL), self._told(done, "")

    @precondition(lambda self: self._has_slot())
    @rule(steps=st.integers(0, 2))
    def slot_advanced(self, steps: int) -> None:
        """Somebody moves the slot past changes, or past nothing."""
        self._meddle("slot advanced", steps)
        self._sql("select pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())", [self.slot])

    @precondition(lambda self: self._has_slot())
    @rule(made=st.booleans(), steps=st.integers(0, 2))
    def slot_dropped(self, made: bool, steps: int) -> None:
        """Somebody drops the slot, and perhaps makes one of its name again."""
        self._meddle(f"slot dropped, {'made again' if made else 'gone'}", steps)
        self._drop_slot(self.slot)
        if made:
            self._sql("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self.slot])

    @precondition(lambda self: self._has_slot())
    @rule(steps=st.integers(1, 3))
    def slot_replaced_by_its_copy(self, steps: int) -> None:
        """The slot is replaced by a copy of itself from some transactions ago, which sends all of them again."""
        self._say("slot replaced by its copy")
        copy = f"{self.slot}_copy"
        self._sql("select pg_copy_logical_replication_slot(%s, %s)", [self.slot, copy])
        self.change(steps)
        if self.harmless and self.mode != "when_needed":
            self.run()
        self._drop_slot(self.slot)
        self._sql("select pg_copy_logical_replication_slot(%s, %s)", [copy, self.slot])
        self._drop_slot(copy)

    @rule(crash=st.booleans())
    def server_restarted(self, crash: bool) -> None:
        """The server is stopped and started again."""
        self._say(f"server restarted{', crashed' if crash else ''}")
        self.at.restart(crash=crash)

    @rule()
    def server_promoted(self) -> None:
        """The server becomes a standby and is promoted with all that it has: another timeline, the same history."""
        self._say("server promoted")
        self._promote(self.at)

    @precondition(lambda self: self.at is self.here)
    @rule()
    def backed_up(self) -> None:
        """A copy of the server's files, slots included."""
        self._say("backed up")
        self.here.halt()
        self._forget_backup()
        self.backup = self.own / f"backup{self._next()}"
        _copy(self.here.data, self.backup)
        self.here.restart()

    @precondition(lambda self: self.backup is not None and self.at is self.here)
    @rule(promoted=st.booleans(), grown=st.booleans(), steps=st.integers(1, 3))
    def restored(self, promoted: bool, grown: bool, steps: int) -> None:
        """The server is replaced by its backup, and goes another way from there, perhaps past where it was."""
        self._say(f"restored{', promoted' if promoted else ''}{', grown' if grown else ''}")
        assert self.backup is not None
        self.here.halt()
        shutil.rmtree(self.here.data)
        _copy(self.backup, self.here.data)
        self.here.restart()
        self.harmless = False
        if promoted:
            self._promote(self.here)
        self.change(steps)
        if grown:
            for _ in range(4):
                self._sql("select pg_switch_wal()")
                self._change(self.here)

    @rule()
    def file_pointed_elsewhere(self) -> None:
        """The connector's file names the other server."""
        self._point(self.there if self.at is self.here else self.here)
        self._say(f"file pointed {'there' if self.at is self.there else 'here'}")
        self.harmless = False

    def teardown(self) -> None:
        """A last run, and the databases are dropped."""
        if not hasattr(self, "file"):
            return
        try:
            if sys.exc_info()[0] is None:  # otherwise a step has failed, which is what counts
                self.change(2)
                self.run()
        finally:
            for server in (self.here, self.there):
                server.drop_database(self.database)
            self._forget_backup()

    def _follow(self, done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
        """Do what the error says, and run again."""
        said = done.stderr
        self._say(said.strip()[-600:])
        for name in _DROPS.findall(said):
            self._drop_slot(name)
        if "wal2lake snapshot" in said:
            taken = self.program.run("snapshot", self.file)
            self._say(f"snapshot: {taken.returncode}")
            assert taken.returncode == 0, self._told(taken, "the remedy failed")
        return self.program.stream(self.file)

    def _point(self, server: Cluster) -> None:
        self.at = server
        more = {"wal2lake.lake.delete.mode.soft": "public.kept"}
        known = {"schema.include.list": "public", "snapshot.mode": self.mode, **lake_settings(self.own), **more}
        self.file = write_properties(
            self.own / "continuity.properties", server.properties(self.database, **known, **{"slot.name": self.slot})
        )

    def _change(self, server: Cluster) -> None:
        chosen, new = self.random, 100 + self._next()
        table = chosen.choice(("keyed", "kept", "keyless"))
        where = f"where id % 7 = {chosen.randrange(7)}"
        statement = chosen.choice(
            [
                f"insert into {table} (id, v) values ({new}, 'v{new}')",
                f"insert into {table} (id, v) select {new}000 + g, 'many' from generate_series(1, 20) g",
                f"update {table} set v = 'u{new}' {where}",
                f"delete from {table} {where}",
                f"update {table} set v = 'all {new}'",
                f"update keyed set c = repeat(md5('{new}'), 100) {where}",
                f"begin; update {table} set v = 'x{new}'; delete from keyed {where}; commit",
                f"update keyed set id = id + 100000 {where}",
            ]
        )
        self.log.append(statement)
        server.execute(self.database, statement)

    def _meddle(self, what: str, steps: int) -> None:
        self.change(steps)
        self._say(what)
        self.harmless = False

    def _promote(self, server: Cluster) -> None:
        server.halt()
        subprocess.run(["touch", str(server.data / "standby.signal")], check=True, timeout=patient(10))
        shutil.chown(server.data / "standby.signal", *_owner(server.data))
        server.restart()
        server.execute("postgres", "select pg_promote(true, 60)")
        wait_until(lambda: server.execute("postgres", "select not pg_is_in_recovery()") == [(True,)], 60, "promotion")

    def _has_slot(self) -> bool:
        # Read by hypothesis before the first step too.
        if not hasattr(self, "file"):
            return False
        found = self.at.execute("postgres", "select 1 from pg_replication_slots where slot_name = %s", [self.slot])
        return bool(found)

    def _drop_slot(self, name: str) -> None:
        def dropped() -> bool:
            free = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and {}"
            self.at.execute("postgres", free.format("not active"), [name])
            return not self.at.execute("postgres", "select 1 from pg_replication_slots where slot_name = %s", [name])

        wait_until(dropped, 30, "the end of the slot", 0.2)

    def _sql(self, text: str, values: list[str] | None = None) -> None:
        self.at.execute(self.database, text, values)

    def _next(self) -> int:
        self.counter += 1
        return self.counter

    def _forget_backup(self) -> None:
        if self.backup is not None:
            shutil.rmtree(self.backup, ignore_errors=True)
        self.backup = None

    def _say(self, text: str) -> None:
        self.log.append(f"-- {text}")

    def _told(self, done: subprocess.CompletedProcess[str], why: str) -> str:
        return f"{why}\n{done.stdout[-1500:]}{done.stderr[-3000:]}\nseed {SEED}\n" + "\n".join(self.log)


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True, timeout=patient(120))


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def test_no_history_of_server_slot_and_file_makes_the_lake_differ_in_silence(program: Program, tmp_path: Path) -> None:
    print(f"WAL2LAKE_CONTINUITY_SEED={SEED}")

    @seed(SEED)
    class Here(Continuity):
        pass

    small = {"min_wal_size": "32MB", "max_wal_size": "256MB"}
    servers = [Cluster.start("debian15", small), Cluster.start("debian15", small)]
    try:
        Here.here, Here.there = servers
        Here.program, Here.folder = program, tmp_path
        run_state_machine_as_test(Here, settings=SETTINGS)
    finally:
        for server in servers:
            server.stop()
