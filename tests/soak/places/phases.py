"""Where a process is stopped, and what leads it there."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_core import failpoints
from cdc_core.schema.table import TableId

BIG, SMALL = TableId("public", "big"), TableId("public", "small")
TABLES = [BIG, SMALL]
SCHEMA = """
create table big (id int primary key, v text);
create table small (id int primary key, v text);
create table signals (id varchar(42) primary key, type varchar(32) not null, data varchar(2048));
insert into big select g, repeat('v', 40) from generate_series(1, 4000) g;
insert into small select g, 'v' from generate_series(1, 10) g;
"""
CHANGE = "update big set v = v || 'c' where id % 50 = {n}; insert into small values ({n} + 1000, 'c')"
_ASK = """
insert into signals values (gen_random_uuid()::text, 'execute-snapshot', '{"data-collections": ["public.big"]}')
"""
_NARROWER = "alter table big alter v type varchar(90) using left(v, 20)"
_REFUSED = "insert into small select g, 'refused' from generate_series(5000, 5020) g"


@dataclass(frozen=True)
class Phase:
    """``place``: where a process stops. ``before`` is run when the lake has been filled, None: the lake is empty.

    ``command``: a run, or what is run beside none. ``meanwhile``: statements that lead a run to the place.
    ``files``: small files that ``small`` has before. ``table``: whose commits another writer's conflicts with.
    """

    place: str
    before: tuple[str, ...] | None = ()
    command: tuple[str, ...] = ("run",)
    meanwhile: tuple[str, ...] = ()
    files: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    table: TableId = BIG

    @property
    def is_run(self) -> bool:
        """Whether it is a run that streams, which goes on by itself."""
        return self.command == ("run",)


_ONE = CHANGE.format(n=7)
_REREAD = (_ONE, _NARROWER, CHANGE.format(n=8))
PHASES: dict[str, Phase] = {
    "first snapshot": Phase(failpoints.AFTER_SNAPSHOT_RANGE, None),
    "first snapshot, commit": Phase(failpoints.BEFORE_SNAPSHOT_COMMIT, None),
    "handover": Phase(f"{failpoints.AFTER_SNAPSHOT_COMMIT}:2", None),
    "stream": Phase(failpoints.DURING_APPEND, meanwhile=(_ONE,)),
    "merge": Phase(failpoints.DURING_MERGE, meanwhile=(_ONE,)),
    "incremental chunk": Phase(failpoints.DURING_CHUNK_APPLY, meanwhile=(_ONE, _ASK)),
    "re-read": Phase(failpoints.BEFORE_SNAPSHOT_COMMIT, meanwhile=_REREAD),
    "re-read, range": Phase(failpoints.AFTER_SNAPSHOT_RANGE, meanwhile=_REREAD),
    "replay": Phase(
        failpoints.DURING_MERGE,
        (_REFUSED, "update small set v = v || '!' where id > 5010"),
        ("replay", str(SMALL), "--accept-all"),
        settings={"wal2lake.quality.rule.known": f"{SMALL}: after.v <> 'refused'"},
        table=SMALL,
    ),
    "maintenance": Phase(failpoints.DURING_COMPACTION, (), ("maintain",), files=12, table=SMALL),
    # So few messages a batch that the changelog has files enough after one statement.
    "maintenance by a run": Phase(
        failpoints.DURING_COMPACTION, meanwhile=(_ONE,), settings={"wal2lake.batch.max.rows": "3"}
    ),
}
