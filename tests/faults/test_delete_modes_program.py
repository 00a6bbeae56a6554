"""Random transactions on three tables, one a delete mode, through runs killed at random places (hypothesis).

Changes of rows, keys and tables, large values that updates leave out, truncates, and rows that a rule refuses; runs of
the stream and replays, any of which may be killed at any place. After each run that ends by itself the rows in force
are the source's in each mode. At the end of an example the rows that the modes soft and history keep are those of a
model that is built from the changelog's events; after a replay the history table also has those of the refused rows;
and reading the tables again adds and loses none. Of a table that had to be read again on the way, events do not tell
when, so only what holds for any history is looked at.

``WAL2LAKE_KILLS_SEED`` sets the seed, ``WAL2LAKE_KILLS_EXAMPLES`` how many examples (default 2, the first of them
hypothesis's simplest), ``WAL2LAKE_KILLS_SHRINK`` whether a failing one is made smaller, which takes long.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from cdc_core import failpoints
from cdc_core.config.connector import ConnectorConfig, load
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import lake_position
from cdc_core.schema.table import TableId
from tests.delta.kept_model import KeptModel
from tests.support import sampling
from tests.support.cluster import Cluster
from tests.support.lake import changelog_path, lake_path, rows, write_properties
from tests.support.program import Program
from tests.support.random_ddl import CONSTANTS, TYPES, RandomDdl, columns_of, difference
from tests.support.waits import patient

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

HARD, SOFT, HISTORY = TABLES = ("t_hard", "t_soft", "t_history")
LIVE = {HARD: "true", SOFT: "not __deleted", HISTORY: "__current"}
SEED = sampling.seed(2611, "WAL2LAKE_KILLS_SEED")
# Keys move by 100000, so that a row which a rule refused is refused wherever it goes.
REFUSED = "id % 100000 % 17 <> 3"
PLACES = (
    *(failpoints.BETWEEN_APPENDS, failpoints.DURING_APPEND, failpoints.AFTER_APPEND, failpoints.BEFORE_CONFIRM),
    *(failpoints.BETWEEN_MERGES, failpoints.DURING_MERGE, failpoints.AFTER_APPLY, failpoints.AFTER_QUARANTINE),
    *(failpoints.DURING_EVOLUTION, failpoints.AFTER_EVOLUTION, failpoints.BEFORE_ROUND_RECORD),
    *(failpoints.AFTER_VECTORS, failpoints.AFTER_SHARE),
)
REPLAY_PLACES = (failpoints.AFTER_QUARANTINE, failpoints.DURING_MERGE, failpoints.AFTER_APPLY)
PHASES = (Phase.generate, *((Phase.shrink,) if os.environ.get("WAL2LAKE_KILLS_SHRINK") else ()))
SETTINGS = settings(
    max_examples=int(os.environ.get("WAL2LAKE_KILLS_EXAMPLES", "2")),
    stateful_step_count=6,
    phases=PHASES,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
# What a step does to the tables is drawn from a seed of its own, which also a thread beside the stream may use.
EVERYWHERE = st.sampled_from(PLACES)
SEEDS = st.integers(0, 2**32)
VERBS = ("insert", "update", "update all", "delete", "move", "many", "large", "large", "twice", "again")


class Work(RandomDdl):
    """Changes that the stream carries: no table has to be read again, and the columns id and c stay what they are."""

    def _rows(self, count: int) -> list[str]:
        return [self.random.choice(VERBS) for _ in range(count)]

    def _ddl(self, count: int) -> list[str]:
        verbs = ("add", "add constant", "drop", "rename", "truncate", "identity full", "identity default")
        return [self.random.choice(verbs) for _ in range(count)]

    def _statements(self, verb: str, table: str) -> list[str]:
        chosen, how = self.random, self.random.randrange(10)
        where = f"where id::text like '%{how}'"
        self.next_id += 10
        new, kind = f"n{self.next_id}", chosen.choice(TYPES)
        names = [name for name, _, _ in columns_of(self.session, table) if name not in ("id", "c")]
        constant = chosen.choice(CONSTANTS.get(kind.split("(")[0], ("null",)))
        large = f"repeat(md5('{self.next_id}'), 100)"
        own = {
            "large": [f"update {table} set c = {large} {where}"],
            "many": [f"insert into {table} (id, c) select {self.next_id} + g, {large} from generate_series(1, 5) g"],
            "twice": [f"update {table} set id = id {where}", f"update {table} set id = id {where}"],
            "again": [f"delete from {table} where id = {how}", f"insert into {table} (id) values ({how})"],
            "add": [f"alter table {table} add {new} {kind}"],
            "add constant": [f"alter table {table} add {new} {kind} default {constant}"],
            "drop": [f"alter table {table} drop {chosen.choice(names)}"] if names else [],
            "rename": [f"alter table {table} rename {chosen.choice(names)} to {new}"] if names else [],
        }
        return own[verb] if verb in own else super()._statements(verb, table)

    def insert_and_delete(self) -> None:
        """One row more in each table, which goes again in a transaction of its own."""
        self.next_id += 20
        new = next(number for number in itertools.count(self.next_id) if number % 17 != 3)
        for table in self.tables:
            self._try(f"insert into {table} (id) values ({new})")
            self._try(f"delete from {table} where id = {new}")


class DeleteModes(RuleBasedStateMachine):
    """One connector over the three tables. ``pg``, ``program`` and ``folder`` are set by the test."""

    pg: Cluster
    program: Program
    folder: Path

    @initialize(rewritten=st.sampled_from(("67108864", "1")), part=st.sampled_from(("67108864", "1000")), chance=SEEDS)
    def begin(self, rewritten: str, part: str, chance: int) -> None:
        """The first snapshot, from which the models start."""
        self.database = self.pg.database("modes")
        self.work = Work(self.pg, self.database, chance, TABLES, publication=self.database)
        folder = self.folder / self.database
        folder.mkdir()
        properties = _properties(self.pg, self.database, folder, rewritten, part)
        self.file = write_properties(folder / "modes.properties", properties)
        self.config = load(self.file)
        self.work.log.append(f"-- files are rewritten up to {rewritten} bytes, a part has {part}")
        self.work.setup()
        self._note("snapshot", self.program.run("snapshot", self.file))
        self.models = {table: _begun(self.config, table) for table in (SOFT, HISTORY)}
        self.tokens = {table: _token(self.config, table) for table in self.models}

    @rule(chance=SEEDS, steps=st.integers(1, 16))
    def change(self, chance: int, steps: int) -> None:
        """Transactions while no run looks."""
        self.work.random = random.Random(chance)
        self.work.run(steps)

    @rule(chance=SEEDS, steps=st.integers(1, 12), place=st.sampled_from(PLACES), time=st.integers(1, 2))
    def stream_killed(self, chance: int, steps: int, place: str, time: int) -> None:
        """A run amid transactions, killed where it comes to the place so many times."""
        self.work.random = random.Random(chance)
        beside = threading.Thread(target=self.work.run, args=(steps,))
        beside.start()
        try:
            done = self.program.stream(self.file, f"{place}:{time}")
        finally:
            beside.join(patient(60))
        self._note(f"run {place}:{time}", done, (0, -signal.SIGKILL))

    @rule()
    def stream(self) -> None:
        """A run to the end of what there is."""
        self._catch_up()

    @rule(place=st.sampled_from(REPLAY_PLACES), table=st.sampled_from(TABLES))
    def replay_killed(self, place: str, table: str) -> None:
        """Let the refused changes of a table in, by a replay that is killed where it comes to the place."""
        self._replay(table, place)

    def teardown(self) -> None:
        """Everything is brought in and compared."""
        if not hasattr(self, "tokens"):
            return
        try:
            if sys.exc_info()[0] is None:  # otherwise a step has failed, which is what counts
                self._end()
        finally:
            self.work.close()
            self.pg.drop_database(self.database)

    def _end(self) -> None:
        # The run comes to this place whatever else there is, and each table has lost a row.
        self.work.insert_and_delete()
        killed = self.program.stream(self.file, failpoints.AFTER_APPEND)
        self._note("run", killed, (-signal.SIGKILL,))
        self._catch_up()
        read_again = {table for table in self.models if _token(self.config, table) != self.tokens[table]}
        for table, model in self.models.items():
            if table in read_again:
                _assert_no_overlap(self.config, table, self._told())
            else:
                _assert_kept(self.config, table, model, self._told())
        if HISTORY not in read_again:
            self._replay(HISTORY)
            _assert_no_overlap(self.config, HISTORY, self._told())
            # What waited is in: all rows of the source are there, refused ones too.
            path = lake_path(self.config, TableId("public", HISTORY))
            assert not difference(self.work.session, HISTORY, path, live=LIVE[HISTORY]), self._told()
        before = _versions(self.config)
        self._note("snapshot", self.program.run("snapshot", self.file))
        _assert_rows_in_force(self.work, self.config, self._told())
        assert _versions(self.config) == before, self._told()

    def _catch_up(self) -> None:
        self._note("run", self.program.stream(self.file))
        _assert_rows_in_force(self.work, self.config, self._told())

    def _replay(self, table: str, place: str | None = None) -> None:
        armed = {"WAL2LAKE_FAILPOINT": place} if place else {}
        done = self.program.run("replay", self.file, f"public.{table}", "--accept-all", **armed)
        self._note(f"replay {table} {place or ''}", done, (0, -signal.SIGKILL) if place else (0,))

    def _note(self, what: str, done: subprocess.CompletedProcess[str], codes: tuple[int, ...] = (0,)) -> None:
        lines = [line for line in done.stderr.splitlines() if "is re-read" in line]
        self.work.log += [f"-- {line}" for line in (*lines, f"{what}: {done.returncode}")]
        assert done.returncode in codes, self._told(done.stdout[-2000:] + done.stderr[-2000:])

    def _told(self, said: str = "") -> str:
        return f"{said}\nseed {SEED}\n" + "\n".join(self.work.log)


def test_each_mode_keeps_what_it_says_through_kills(pg: Cluster, program: Program, tmp_path: Path) -> None:
    print(f"WAL2LAKE_KILLS_SEED={SEED}")

    @seed(SEED)
    class Here(DeleteModes):
        pass

    Here.pg, Here.program, Here.folder = pg, program, tmp_path
    run_state_machine_as_test(Here, settings=SETTINGS)


def _properties(pg: Cluster, database: str, folder: Path, rewritten: str, part: str) -> dict[str, Any]:
    rules = {f"wal2lake.quality.rule.{table}": f"public.{table}: after.{REFUSED}" for table in TABLES}
    return pg.properties(
        database,
        **{
            "table.include.list": "public.t_.*",
            "publication.autocreate.mode": "all_tables",
            "wal2lake.lake.path": str(folder / "lake"),
            "wal2lake.state.path": str(folder / "state"),
            "wal2lake.freshness.seconds": "0",
            "wal2lake.lake.delete.mode": "history",
            "wal2lake.lake.delete.mode.soft": "public.t_soft",
            "wal2lake.lake.delete.mode.hard": "public.t_hard",
            "wal2lake.merge.rewrite.max.bytes": rewritten,
            "wal2lake.merge.part.max.bytes": part,
            **rules,
        },
    )


def _assert_rows_in_force(work: Work, config: ConnectorConfig, told: str) -> None:
    for table in TABLES:
        path = lake_path(config, TableId("public", table))
        found = difference(work.session, table, path, REFUSED, live=f"{LIVE[table]} and {REFUSED}")
        assert not found, f"{table}: {found}\n{told}"


def _token(config: ConnectorConfig, table: str) -> int | None:
    """The snapshot in force."""
    name = TableId("public", table)
    return lake_position(DeltaTable.open(str(lake_path(config, name))), config.postgres.slot_name, name).token


def _assert_no_overlap(config: ConnectorConfig, table: str, told: str) -> None:
    """Versions of one key follow one another; in soft mode a key has one row."""
    held: dict[int, list[tuple[Any, Any]]] = {}
    for row in rows(lake_path(config, TableId("public", table))):
        place = None if table == SOFT else _version(row)[2:]
        held.setdefault(row["id"], []).append((None, None) if place is None else place)
    for key, places in held.items():
        assert table != SOFT or len(places) == 1, f"{key} of {table}\n{told}"
        ordered = sorted(places, key=lambda place: place[0] or ())
        for (_, ended), (began, _) in itertools.pairwise(ordered):
            assert ended is not None and ended <= began, f"{key} of {table}\n{told}"


def _begun(config: ConnectorConfig, table: str) -> KeptModel:
    """The model as of the first snapshot, whose rows the lake has, for the rows that no rule refuses."""
    model = KeptModel(("id",))
    found = rows(lake_path(config, TableId("public", table)), f"select * from t where {REFUSED}")
    model.take([{"id": row["id"], "c": row["c"]} for row in found], (found[0]["__commit_lsn"], -1, None))
    return model


def _assert_kept(config: ConnectorConfig, table: str, model: KeptModel, told: str) -> None:
    """The model brought on by the changelog's events, against the lake's rows: keys, the large column, positions."""
    name = TableId("public", table)
    for event in sorted(rows(changelog_path(config, name)), key=lambda row: (row["__commit_lsn"], row["__tx_index"])):
        sides = {side: _part(event[side]) for side in ("before", "after")}
        key = (sides["after"] or sides["before"] or {"id": 0})["id"]
        if key % 100000 % 17 != 3:
            model.apply({**event, **sides, "__unchanged": [each for each in event["__unchanged"] if each == "c"]})
    held = rows(lake_path(config, name), f"select * from t where {REFUSED}")
    if table == SOFT:
        shown: Any = {(r["id"],): (r["c"], r["__deleted"], (r["__commit_lsn"], r["__tx_index"])) for r in held}
        wanted: Any = {key: (values["c"], gone, at) for key, (values, gone, at) in model.soft.items()}
        assert len(shown) == len(held) and any(gone for _, gone, _ in wanted.values()), told
    else:
        shown = Counter(_version(row) for row in held)
        wanted = Counter(
            (v.values["id"], v.values["c"], v.began[:2], None if v.ended is None else v.ended[:2])
            for v in model.versions
        )
    assert shown == wanted, f"{table}\n{told}"


def _part(side: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if side is None else {"id": side["id"], "c": side.get("c")}


def _version(row: dict[str, Any]) -> tuple[Any, ...]:
    assert row["__current"] is (row["__valid_to_lsn"] is None) is (row["__valid_to"] is None)
    ended = None if row["__valid_to_lsn"] is None else (row["__valid_to_lsn"], row["__valid_to_index"])
    return row["id"], row["c"], (row["__valid_from_lsn"], row["__tx_index"]), ended


def _versions(config: ConnectorConfig) -> tuple[Counter[Any], Counter[Any]]:
    """What the modes keep: versions of untainted keys, and marked rows."""
    history = rows(lake_path(config, TableId("public", HISTORY)), f"select * from t where {REFUSED}")
    soft = rows(lake_path(config, TableId("public", SOFT)), f"select * from t where {REFUSED} and __deleted")
    return Counter(map(_version, history)), Counter((row["id"], row["c"], row["__commit_lsn"]) for row in soft)
