"""Random ALTERs and changes of rows on a live table: a lake that follows the decisions never differs in silence.

The stream is taken at random places, so the catalogue is behind nothing, or ahead by one change or by many (all of
them, where the stream is taken only at the end). Whatever happened, the lake then holds the source's rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st
from psycopg.pq import TransactionStatus

from cdc_core.schema.changes import DroppedColumns, Policy, Verdict
from tests.postgres.evolution_model import ModelLake, Session, two_sessions
from tests.support.cluster import Cluster

pytestmark = pytest.mark.postgres

NAMES = ("a", "b", "c", "d")
TYPES = ("int", "bigint", "oid", "text", "varchar(5)", "varchar(9)", "numeric(8,2)", "numeric(12,2)", "numeric", "mood")
CONSTANTS = {"int": "7", "bigint": "8", "oid": "9", "numeric": "1.5", "mood": "'ok'"}
SETUP = (
    "drop publication if exists p",
    "drop table if exists t",
    "drop type if exists mood",
    "create type mood as enum ('sad', 'ok')",
)
VERBS = {
    "update": ["update t set {name} = {value} where {key}::text like '%{how}'"],
    "delete": ["delete from t where {key}::text like '%{how}'"],
    "add": ["alter table t add {new} {kind}"],
    "add constant": ["alter table t add {new} {kind} default {constant}"],
    "add volatile": ["alter table t add {new} float8 default random()"],
    "add generated": ["alter table t add {new} int generated always as (length({key}::text)) stored"],
    "drop": ["alter table t drop {name}"],
    "rename": ["alter table t rename {name} to {to}"],
    "swap": [
        "alter table t rename {name} to zz",
        "alter table t rename {other} to {name}",
        "alter table t rename zz to {other}",
    ],
    "retype": ["alter table t alter {name} type {kind}"],
    "using": ["alter table t alter {name} type {present} using null"],
    "replace": ["alter table t drop {name}, add {again} {kind}"],
    "default": ["alter table t alter {name} set default null"],
    "no default": ["alter table t alter {name} drop default"],
    "not null": ["alter table t alter {name} set not null"],
    "null": ["alter table t alter {name} drop not null"],
    "express": ["alter table t alter {name} drop expression"],
    "statistics": ["alter table t alter {name} set statistics {how}"],
    "full": ["vacuum full t"],
    "identity": ["alter table t replica identity {identity}"],
    "key": ["alter table t add primary key ({key})"],
    "no key": ["alter table t drop constraint t_pkey"],
    "key again": [
        "alter table t drop constraint t_pkey",
        "insert into t ({key}) select {key} from t where {key}::text like '%{how}'",
        "delete from t a using t b where a.{key} = b.{key} and a.ctid > b.ctid",
        "alter table t add constraint t_pkey primary key ({key})",
    ],
    "truncate": ["truncate t"],
    "label": ["alter type mood add value 'l{how}'"],
    "rename label": ["alter type mood rename value '{label}' to 'm{how}'"],
    "recreate": ["drop table t", "{create}", "insert into t values (1, 2, 3)", "{publish}"],
    "republish": [
        "alter publication p drop table t",
        "delete from t where {key}::text like '%{which}'",
        "alter publication p add table t",
    ],
}
# These end what came before them, so they come seldom.
RARE = {"truncate": 3, "recreate": 2, "republish": 2}
OFTEN = ("add", "add constant", "drop", "rename", "swap", "retype", "using", "replace", "replace", "full")
SPARES_KEY = ("update", "drop", "retype", "using", "replace", "default", "no default", "not null", "null", "express")
EXAMPLES = 40
STEPS = 16

small = st.integers(0, 5)
# Each is a verb with numbers that choose among what is there when it is run.
row_step = st.tuples(st.sampled_from(["insert", "insert", "update", "delete"]), small, small)


def script_of(verbs: list[str]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """A script of a few verbs only: they meet one another more often than out of all."""
    ddl_step = st.tuples(st.sampled_from(verbs), small, st.integers(0, 9))
    step = st.one_of(row_step, ddl_step)
    together = st.tuples(st.just("together"), st.lists(step, min_size=2, max_size=4))
    return st.lists(st.one_of(step, step, together, st.sampled_from([("take",), ("ask",)])), min_size=6, max_size=STEPS)


scripts = st.lists(st.sampled_from([*VERBS, *OFTEN]), min_size=2, max_size=4, unique=True).flatmap(script_of)


# Scripts that a decision by names and types, or by the present catalogue alone, gets wrong.
TRAPS: dict[str, list[tuple[Any, ...]]] = {
    "last column replaced by its like": [("retype", 2, 5), ("insert", 1, 3), ("replace", 2, 5), ("insert", 1, 4)],
    "renamed to the name of a later one": [
        *[("rename", 2, 2), ("insert", 1, 3), ("drop", 2, 0), ("add", 2, 4), ("insert", 1, 5)],
    ],
    "added, then stored anew": [("insert", 0, 0), ("add constant", 2, 0), ("full", 0, 0), ("insert", 0, 3)],
    "added with a value a row": [("insert", 0, 0), ("add volatile", 2, 0), ("insert", 0, 3)],
    "same type, other values": [("insert", 0, 0), ("using", 1, 0), ("insert", 0, 0)],
    "two renamed into one another": [("insert", 0, 3), ("swap", 1, 2), ("insert", 0, 4), ("insert", 1, 5)],
    "left and came back": [("insert", 0, 3), ("republish", 1, 0), ("insert", 0, 4)],
    "a label under stored values": [("add constant", 2, 9), ("insert", 0, 0), ("rename label", 0, 1), ("insert", 0, 0)],
}


def traps(test: Any, takes_late: bool) -> Any:
    """The test, with each trap on each kind of table before what is made up. No trap is taken but at its end."""
    for script in TRAPS.values() if takes_late else ():
        for lists_table, is_narrow in ((True, True), (True, False), (False, False)):
            test = example(script, lists_table, is_narrow, DroppedColumns.KEEP)(test)
    return test


class Source:
    """The live table, changed by steps. A statement that the server refuses changes nothing."""

    def __init__(self, session: Session, lists_table: bool, is_narrow: bool) -> None:
        self.session, self.lists_table = session, lists_table
        self.next_id = 100
        self.create = "create table t (id int primary key, a int default 1, b " + (
            "int)" if is_narrow else "varchar(5))"
        )
        for text in (*SETUP, self.create, "create publication p for " + ("table t" if lists_table else "all tables")):
            session.execute(text.encode(), prepare=False)
        session.execute("insert into t select g, g, g from generate_series(1, 4) g")

    def columns(self) -> list[tuple[str, str, str]]:
        """(name, type, attgenerated) of each."""
        return self.session.execute(
            "select attname, format_type(atttypid, atttypmod), attgenerated::text from pg_attribute "
            "where attrelid = 't'::regclass and attnum > 0 and not attisdropped order by attnum"
        ).fetchall()

    def run(self, one: tuple[Any, ...]) -> None:
        if one[0] == "together":
            with self.session.transaction():
                for inner in one[1]:
                    self.run(inner)
            return
        for text in self.statements(*one):
            note(text)
            is_alone = self.session.info.transaction_status is TransactionStatus.IDLE
            try:
                # VACUUM can be in no transaction; in one, a savepoint keeps what came before a refusal.
                with nullcontext() if is_alone else self.session.transaction():
                    self.session.execute(text.encode(), prepare=False)
            except psycopg.Error as error:
                note(f"  refused: {error.diag.message_primary}")

    def statements(self, verb: str, which: int, how: int) -> list[str]:
        columns = self.columns()
        key, kind = columns[0][0], TYPES[how % len(TYPES)]
        others = [column for column, _, generated in columns[1:] if not generated]
        if verb == "insert":
            self.next_id += 1
            if how == 0 or not others:
                return [f"insert into t ({key}) values ({self.next_id})"]
            value = "null" if how == 1 else f"'{how}'"
            return [f"insert into t ({key}, {others[which % len(others)]}) values ({self.next_id}, {value})"]
        if (verb in RARE and how >= RARE[verb]) or (verb == "republish" and not self.lists_table):
            return []
        name, present, _ = columns[which % len(columns)]
        if name == key and verb in SPARES_KEY:
            return []
        publish = "alter publication p add table t" if self.lists_table else "select 1"
        words = {
            "key": key, "name": name, "present": present, "kind": kind, "how": how, "which": which,
            "other": columns[how % len(columns)][0], "new": NAMES[which % len(NAMES)], "to": NAMES[how % len(NAMES)],
            "constant": CONSTANTS.get(kind.split("(")[0], "'q'"), "label": ("sad", "ok")[how % 2],
            "identity": ("full", "default")[how % 2], "create": self.create, "publish": publish,
            "value": "default" if which % 2 else f"'{how}'", "again": name if how % 2 else NAMES[which % len(NAMES)],
        }  # fmt: skip
        return [text.format(**words) for text in VERBS[verb]]


@pytest.fixture(scope="module")
def sessions(each_pg: Cluster) -> Iterator[tuple[Session, Session]]:
    with two_sessions(each_pg, "random") as sessions:
        yield sessions


@pytest.mark.parametrize("takes_late", [False, True], ids=["along the way", "at the end"])
def test_a_lake_that_follows_the_decisions_never_differs_in_silence(
    sessions: tuple[Session, Session], takes_late: bool
) -> None:
    seen: Counter[str] = Counter()
    session, reader = sessions
    slot = session.info.dbname

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(scripts, st.booleans(), st.booleans(), st.sampled_from(DroppedColumns))
    def follow(script: list[tuple[Any, ...]], lists_table: bool, is_narrow: bool, dropped: DroppedColumns) -> None:
        source = Source(session, lists_table, is_narrow)
        reader.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        try:
            lake = ModelLake(session, reader, "p", slot, policy=Policy(dropped=dropped))
            lake.read_table()
            for one in script:
                if one[0] not in ("take", "ask"):
                    source.run(one)
                elif not takes_late and not lake.is_paused:
                    lake.drain()
                    lake.is_paused or one[0] == "take" or lake.poll()
            lake.drain()
            if not lake.is_paused:
                lake.poll()
            for decision in lake.decisions:
                note(f"{decision.verdict}: {decision.changes} {decision.operations} {decision.reason}")
                seen["followed" if decision.operations else decision.verdict.value] += 1
            if not lake.is_paused:
                lake.assert_equal()
        finally:
            reader.execute("select pg_drop_replication_slot(%s)", [slot])

    traps(follow, takes_late)()
    assert seen["followed"] and seen[Verdict.REREAD.value], "both roads were taken"
