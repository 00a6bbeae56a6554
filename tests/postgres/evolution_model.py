"""A lake of plain Python that follows one live table by the decisions of ``cdc_core.schema.evolution``.

It reads a slot by SQL functions, one message at a time, and holds rows as dictionaries of PostgreSQL's own text. What
it knows of the table comes from the Relation messages and the catalogue, as in the product.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg

from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.schema.changes import (
    AddColumn,
    Comment,
    Decision,
    DropColumn,
    MoveTable,
    Policy,
    RenameColumn,
    RetireColumn,
    SetKey,
    Verdict,
    WidenColumn,
    project,
)
from cdc_core.schema.evolution import decide
from cdc_core.schema.relation import Relation
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.schema.unseen import is_streamed
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import resolve
from tests.support import plain_pgoutput as plain
from tests.support.cluster import Cluster

Row = dict[str, str | None]
Session = psycopg.Connection[tuple[Any, ...]]


def lake_type(column: Column) -> Any:
    """The column's type in the lake."""
    return resolve(column, TypeOptions()).natural.arrow_type


@contextmanager
def two_sessions(cluster: Cluster, prefix: str) -> Iterator[tuple[Session, Session]]:
    """Sessions of a new database: one that changes the table and reads the catalogue, and one that reads the slot.

    The server takes longer to plan the queries of the catalogue than to run them. The first session plans each once;
    decoding would make it forget its plans.
    """
    database = cluster.database(prefix)
    planned = "-c plan_cache_mode=force_generic_plan -c statement_timeout=20000"
    with (
        cluster.connect(database, unix=True, options=planned, prepare_threshold=0) as session,
        cluster.connect(database, unix=True) as reader,
    ):
        yield session, reader
    cluster.drop_database(database)


@dataclass
class ModelLake:
    """``rows`` are the lake's; ``decisions`` every one taken, in order. A paused lake takes nothing more.

    ``connection`` reads the catalogue, ``reader`` the slot (``two_sessions``).
    """

    connection: Session
    reader: Session
    publication: str
    slot: str
    table: str = "t"
    policy: Policy = field(default_factory=Policy)
    rows: list[Row] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    is_paused: bool = False
    base: TableSchema | None = None
    relations: dict[int, Relation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.catalog = Catalog(self.connection, self.publication)

    def twin(self) -> ModelLake:
        """Another lake, which stands where this one does and has a slot of its own."""
        slot = f"{self.slot}_twin"
        self.reader.execute("select pg_copy_logical_replication_slot(%s, %s)", [self.slot, slot])
        rows, columns, relations = [dict(row) for row in self.rows], list(self.columns), dict(self.relations)
        return replace(self, slot=slot, rows=rows, columns=columns, relations=relations, decisions=[])

    def read_table(self) -> None:
        """The table as it is now, rows and description of one state, as a snapshot would take them."""
        with self.connection.transaction():
            self.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            found = self.catalog.tables(lambda name: name.table == self.table)
            if not found:
                self.base, self.rows, self.columns = None, [], []
                return
            self.base = found[0]
            self.columns = [c.name for c in streamed(self.base)]
            self.rows = self.source_rows(self.columns)

    def source_rows(self, columns: list[str]) -> list[Row]:
        """What the source holds, as the text that the stream would bring."""
        assert self.base is not None
        listed = ", ".join('"' + name + '"' for name in columns)
        cursor = self.connection.execute(
            f'select {listed} from "{self.base.id.schema}"."{self.base.id.table}"', prepare=False
        )
        result = cursor.pgresult
        assert result is not None
        texts = [[result.get_value(at, place) for place in range(result.nfields)] for at in range(result.ntuples)]
        return [
            dict(zip(columns, [None if text is None else text.decode() for text in line], strict=True))
            for line in texts
        ]

    def drain(self) -> None:
        """Take everything that the slot has."""
        messages = self.reader.execute(
            "select data from pg_logical_slot_get_binary_changes(%s, null, null, 'proto_version', '1', "
            "'publication_names', %s)",
            [self.slot, self.publication],
        ).fetchall()
        for (data,) in messages:
            if self._take(bytes(data)) is Verdict.REREAD:
                # Nobody else writes: the rest of these messages is in what was read.
                return

    def poll(self) -> Decision:
        """Ask the catalogue, the stream being at rest behind everything."""
        assert self.base is not None
        found = self.catalog.resolve_relation(
            Relation(self.base.oid, *self.base.id, self.base.identity, ())
        )  # no columns told
        return self._decide(None, found.current)

    def _take(self, data: bytes) -> Verdict | None:
        kind = chr(data[0])
        if kind == "R":
            relation = plain.plain_relation(data)
            self.relations[relation.oid] = relation
            if self.is_paused or not self._is_ours(relation):
                return None
            seen = self.catalog.resolve_relation(relation)
            return self._decide(seen.announced, seen.current).verdict
        if kind == "T":
            count = struct.unpack("!I", data[1:5])[0]
            oids = struct.unpack(f"!{count}I", data[6:])
            if self.base is not None and self.base.oid in oids and not self.is_paused:
                self.rows = []
        if kind in "IUD" and not self.is_paused:
            (oid,) = struct.unpack("!I", data[1:5])
            if self.base is not None and oid == self.base.oid:
                self._change(kind, data[5:], self.relations[oid])
        return None

    def _is_ours(self, relation: Relation) -> bool:
        if self.base is None:
            return False
        return relation.oid == self.base.oid or TableId(relation.namespace, relation.name) == self.base.id

    def _decide(self, announced: TableSchema | None, current: TableSchema | None) -> Decision:
        assert self.base is not None
        decision = decide(
            self.base, announced, current, lake_type=lake_type, policy=self.policy, lake_columns=self.columns
        )
        self.decisions.append(decision)
        if decision.verdict is Verdict.REREAD:
            self.read_table()
        elif decision.verdict is Verdict.REFUSE:
            self.is_paused = True
        else:
            self._follow(decision)
        return decision

    def _follow(self, decision: Decision) -> None:
        projected = project(self.columns, decision.operations)
        folded = [
            {one.name: row[one.source] if one.source is not None else one.fill for one in projected}
            for row in self.rows
        ]
        for operation in decision.operations:
            self._apply(operation)
        assert Counter(map(frozen, folded)) == Counter(map(frozen, self.rows)), "both readings of a plan agree"
        self.base = decision.table

    def _apply(self, operation: Any) -> None:
        match operation:
            case DropColumn(name):
                self.columns.remove(name)
                for row in self.rows:
                    del row[name]
            case RetireColumn(name):
                assert name in self.columns
            case RenameColumn(name, to):
                assert to.lower() not in {other.lower() for other in self.columns if other != name}
                self.columns[self.columns.index(name)] = to
                for row in self.rows:
                    row[to] = row.pop(name)
            case AddColumn(column, fill):
                assert column.name.lower() not in {name.lower() for name in self.columns}
                self.columns.append(column.name)
                for row in self.rows:
                    row[column.name] = fill
            case WidenColumn(name, _):
                assert name in self.columns
            case MoveTable() | SetKey() | Comment():
                pass
            case _:
                raise AssertionError(operation)

    def _change(self, kind: str, body: bytes, relation: Relation) -> None:
        names = [column.name for column in relation.columns]
        at, old, new = 0, None, None
        if chr(body[0]) in "KO":
            mark = chr(body[0])
            values, at = plain._plain_tuple(body, 1)
            old = {
                name: value
                for name, value, column in zip(names, values, relation.columns, strict=True)
                if mark == "O" or column.is_identity
            }
        if kind != "D":
            values, at = plain._plain_tuple(body, at + 1)
            new = dict(zip(names, values, strict=True))
        if kind == "I":
            assert new is not None
            self.rows.append(self._whole(new, {}))
            return
        assert self.base is not None
        key = self.base.row_key
        wanted = {name: (old or new or {})[name] for name in key} if key else dict(old or {})
        places = [i for i, row in enumerate(self.rows) if all(row[name] == value for name, value in wanted.items())]
        assert places, f"no row to change by {sorted(wanted)}"
        before = self.rows.pop(places[0])
        if kind == "U":
            assert new is not None
            self.rows.append(self._whole(new, before))

    def _whole(self, new: dict[str, Any], before: Row) -> Row:
        """A row with all of the lake's columns; what the event does not have is null."""
        assert self.base is not None and set(new) <= set(self.columns), (sorted(new), self.columns)
        kept = {name: before.get(name) if isinstance(value, plain.Unchanged) else value for name, value in new.items()}
        return {name: kept.get(name) for name in self.columns}

    def assert_equal(self) -> None:
        """The lake holds the source's rows, column by column of those that the stream brings."""
        assert self.base is not None and not self.is_paused
        [table] = self.catalog.tables(lambda name: name == self.base.id)
        names = [column.name for column in streamed(table)]
        assert [column.attnum for column in self.base.columns if column.name in names] == [
            column.attnum for column in streamed(table)
        ]
        mine = Counter(frozen({name: row[name] for name in names}) for row in self.rows)
        assert mine == Counter(map(frozen, self.source_rows(names)))


def streamed(table: TableSchema) -> list[Column]:
    """The columns that the stream brings."""
    return [column for column in table.columns if is_streamed(column, table.fingerprint)]


def frozen(row: Row) -> tuple[tuple[str, str | None], ...]:
    """A row as something to count."""
    return tuple(sorted(row.items()))
