"""Random changes of rows and of tables, and the comparison of a lake with what they left.

    work = RandomDdl(pg, database, seed, ("t1", "t2"))
    work.setup(); work.run(20); work.different(folder)

Statements are text with names of the moment. One that the server refuses changes nothing and is passed over.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from psycopg.pq import TransactionStatus

from tests.support.cluster import Cluster

TYPES = ("int", "bigint", "oid", "text", "varchar(5)", "varchar(9)", "numeric(8,2)", "numeric(12,2)", "numeric", "mood")
CONSTANTS = {
    "int": ("7", "null"), "bigint": ("8", "-9"), "oid": ("9", "10"), "mood": ("'ok'", "null"),
    "numeric": ("1.5", "'NaN'", "77"), "text": ("'q'", "'it''s'", "null"), "varchar": ("'v'", "''"),
    "timestamp": ("'infinity'", "'2020-02-03 04:05:06.5'"), "date": ("'-infinity'", "'1999-12-31'"),
}  # fmt: skip
NAMES = ("a", "b", "c", "d", "e")
CREATE = "create table {t} (id int primary key, a int default 1, b varchar(9), c text, d timestamp)"
ROWS = "insert into {t} select g, g, 'b' || g, repeat(md5(g::text), 80), '2020-01-01' from generate_series(1, {n}) g"
# Each a list of statements; {name} and {other} are columns, {new} may be one.
DDL = {
    "add": ["alter table {t} add {new} {kind}"],
    "add constant": ["alter table {t} add {new} {kind} default {constant}"],
    "add infinity": ["alter table {t} add {new} timestamp default 'infinity'"],
    "add volatile": ["alter table {t} add {new} float8 default random()"],
    "add generated": ["alter table {t} add {new} int generated always as (length({key}::text)) stored"],
    "drop": ["alter table {t} drop {name}"],
    "rename": ["alter table {t} rename {name} to {to}"],
    "rename key": ["alter table {t} rename {key} to {key}x"],
    "swap": [
        "alter table {t} rename {name} to zz",
        "alter table {t} rename {other} to {name}",
        "alter table {t} rename zz to {other}",
    ],
    "retype": ["alter table {t} alter {name} type {kind}"],
    "using": ["alter table {t} alter {name} type {present} using null"],
    "to text": ["alter table {t} alter {name} type text using {name} || '!'"],
    "replace": ["alter table {t} drop {name}, add {name} {kind}"],
    "same again": ["alter table {t} drop {name}, add {name} {present}"],
    "default": ["alter table {t} alter {name} set default null"],
    "not null": ["alter table {t} alter {name} set not null"],
    "null": ["alter table {t} alter {name} drop not null"],
    "express": ["alter table {t} alter {name} drop expression"],
    "full": ["vacuum full {t}"],
    "identity full": ["alter table {t} replica identity full"],
    "identity default": ["alter table {t} replica identity default"],
    "no key": ["alter table {t} replica identity full", "alter table {t} drop constraint {t}_pkey"],
    "key": ["alter table {t} add constraint {t}_pkey primary key ({key})"],
    "key again": [
        "alter table {t} replica identity full",
        "alter table {t} drop constraint {t}_pkey",
        "insert into {t} ({key}) select {key} from {t} where {key}::text like '%{how}'",
        "delete from {t} a using {t} b where a.{key} = b.{key} and a.ctid > b.ctid",
        "alter table {t} add constraint {t}_pkey primary key ({key})",
    ],
    "other key": [
        "alter table {t} drop constraint {t}_pkey, add constraint {t}_pkey primary key ({key}, {name})",
    ],
    "label": ["alter type mood add value 'l{how}'"],
    "rename label": ["alter type mood rename value 'l{how}' to 'm{how}'"],
    "recreate": ["drop table {t}", "{create}", "{rows}", "{publish}"],
    "away and back": [
        "alter table {t} rename to away",
        "insert into away ({key}) values ({next})",
        "alter table away rename to {t}",
    ],
    "republish": ["{leave}", "delete from {t} where {key}::text like '%{how}'", "{publish}"],
    "truncate": ["truncate {t}"],
    "comment": ["comment on column {t}.{name} is 'said {how}'"],
}
SELDOM = {"recreate", "republish", "truncate", "away and back", "rename label", "full", "add volatile", "other key"}
SELDOM |= {"key again"}
ROWS_VERBS = ("insert", "insert", "update", "update", "update all", "delete", "move", "many")


class RandomDdl:
    """Changes tables at random; ``log`` holds what was run. ``is_listed``: the publication names each table."""

    def __init__(
        self, pg: Cluster, database: str, seed: int, tables: Sequence[str], *, publication: str, is_listed: bool = False
    ) -> None:
        self.random = random.Random(seed)
        self.tables, self.publication, self.is_listed = tuple(tables), publication, is_listed
        self.session = pg.connect(database, options="-c statement_timeout=20000", prepare_threshold=None)
        self.log: list[str] = []
        self.next_id = 1000

    def close(self) -> None:
        self.session.close()

    def setup(self) -> None:
        """Make the tables, each with some rows."""
        self._try("create type mood as enum ('sad', 'ok')")
        for table in self.tables:
            self._try(CREATE.format(t=table))
            self._try(f"alter table {table} alter c set storage external")
            self._try(ROWS.format(t=table, n=20))

    def run(self, steps: int) -> None:
        """So many steps, each on a table by chance."""
        for _ in range(steps):
            table = self.random.choice(self.tables)
            if self.random.random() < 0.25:
                with self.session.transaction():
                    for verb in (*self._rows(1), *self._ddl(1), *self._rows(2)):
                        self._step(verb, table)
            else:
                verbs = self._rows(1) if self.random.random() < 0.6 else self._ddl(1)
                for verb in verbs:
                    self._step(verb, table)

    def different(self, lake: Path, passed_over: Sequence[str] = ()) -> dict[str, str]:
        """The tables whose lake side is not the source's rows, with what is different in a few words."""
        found = {}
        for table in self.tables:
            if table not in passed_over and (said := self.difference(table, lake / "public" / table)):
                found[table] = said
        return found

    def difference(self, table: str, path: Path) -> str:
        """What is different about a table, empty for nothing."""
        return difference(self.session, table, path)

    def publish_again(self, table: str) -> None:
        """Put a table that was made again into the publication, where it is not there."""
        self._try(f"alter publication {self.publication} add table {table}")

    def _rows(self, count: int) -> list[str]:
        return [self.random.choice(ROWS_VERBS) for _ in range(count)]

    def _ddl(self, count: int) -> list[str]:
        often = [verb for verb in DDL if verb not in SELDOM]
        return [self.random.choice([*often, *often, *DDL]) for _ in range(count)]

    def _step(self, verb: str, table: str) -> None:
        for text in self._statements(verb, table):
            if not self._try(text):
                return

    def _try(self, text: str) -> bool:
        is_alone = self.session.info.transaction_status is TransactionStatus.IDLE
        if text.startswith("vacuum") and not is_alone:
            return False
        try:
            if is_alone:
                self.session.execute(text.encode())
            else:
                with self.session.transaction():
                    self.session.execute(text.encode())
        except psycopg.Error as error:
            self.log.append(f"{text}  -- {error.diag.message_primary}")
            return False
        self.log.append(text if is_alone else f"  {text}")
        return True

    def _statements(self, verb: str, table: str) -> list[str]:
        columns = columns_of(self.session, table)
        if not columns:
            return []
        chosen, self.next_id = self.random, self.next_id + 10
        key = columns[0][0]
        others = [(name, kind) for name, kind, generated in columns[1:] if not generated]
        name, present = chosen.choice(others or [(key, "int")])
        how = chosen.randrange(10)
        if verb in ROWS_VERBS:
            value = chosen.choice(CONSTANTS.get(present.split("(")[0].split(" ")[0], ("null",)))
            where = f"where {key}::text like '%{how}'"
            return {
                "insert": [f"insert into {table} ({key}) values ({self.next_id})"],
                "many": [f"insert into {table} ({key}) select {self.next_id} + g from generate_series(1, 5) g"],
                "update": [f"update {table} set {name} = {value} {where}"],
                "update all": [f"update {table} set {name} = default"],
                "delete": [f"delete from {table} {where}"],
                "move": [f"update {table} set {key} = {key} + 100000 {where}"],
            }[verb]
        kind = chosen.choice(TYPES)
        words = {
            "t": table, "key": key, "name": name, "present": present, "kind": kind, "how": how, "next": self.next_id,
            "other": chosen.choice(others or [(key, "int")])[0], "new": chosen.choice(NAMES),
            "to": chosen.choice(NAMES),
            "constant": chosen.choice(CONSTANTS.get(kind.split("(")[0], ("null",))),
            "create": CREATE.format(t=table), "rows": ROWS.format(t=table, n=8),
            "publish": f"alter publication {self.publication} add table {table}" if self.is_listed else "select 1",
            "leave": f"alter publication {self.publication} drop table {table}" if self.is_listed else "select 1",
        }  # fmt: skip
        return [text.format(**words) for text in DDL[verb]]


def columns_of(session: psycopg.Connection[Any], table: str, schema: str = "public") -> list[tuple[str, str, str]]:
    """(name, type, attgenerated) of each column."""
    return session.execute(
        "select attname::text, format_type(atttypid, atttypmod), attgenerated::text from pg_attribute "
        "where attrelid = to_regclass(%s) and attnum > 0 and not attisdropped order by attnum",
        [f'"{schema}"."{table}"'],
    ).fetchall()


def difference(
    session: psycopg.Connection[Any],
    table: str,
    path: Path,
    where: str = "true",
    columns: Sequence[str] = (),
    schema: str = "public",
    live: str = "true",
) -> str:
    """How the Delta table at ``path`` differs from the source's rows, as PostgreSQL's text; empty where it does not.

    ``columns``: those that the stream brings, where they are not all but the generated ones. ``live``: which rows of
    the lake count, in the words of DataFusion.
    """
    known = [(name, kind) for name, kind, generated in columns_of(session, table, schema) if not generated]
    known = [(name, kind) for name, kind in known if name in columns] if columns else known
    if not known:
        return "" if not columns_of(session, table, schema) else "it has no columns"
    # What the type's output function gives, which pgoutput and COPY send; a cast may give another text.
    exprs = ", ".join(_as_text(name, kind) for name, kind in known)
    rows = session.execute(f'select {exprs} from "{schema}"."{table}" where {where}'.encode()).fetchall()
    kinds = [kind for _, kind in known]
    source = Counter(tuple(_float(v) if k in ("double precision", "real") else v for v, k in zip(r, kinds, strict=True))
                     for r in rows)  # fmt: skip
    query = QueryBuilder().register("lake", DeltaTable(str(path))).execute(f"select * from lake where {live}")
    held = pa.table(query)
    names = [name for name, _ in known]
    if missing := [name for name in names if name not in held.column_names]:
        return f"the lake has no column {', '.join(missing)}"
    values = held.select(names).to_pylist()
    texts = held.column("__rescued").to_pylist()
    lake = Counter(
        tuple({**{n: _text(v) for n, v in row.items()}, **{n: v for n, v in text or [] if n in row}}.values())
        for row, text in zip(values, texts, strict=True)
    )
    lost, extra = source - lake, lake - source
    if not lost and not extra:
        return ""
    shown = [
        tuple(v if v is None or len(v) < 12 else v[:12] for v in row) for row in (*list(lost)[:2], *list(extra)[:2])
    ]
    return f"{source.total()} rows, of {names}: {lost.total()} missing, {extra.total()} too many: {shown}"


def events_of(session: psycopg.Connection[Any], slot: str, publication: str) -> Counter[str]:
    """Inserts, updates and deletes in the slot by ``schema.table``, told by pgoutput's bytes alone."""
    rows = session.execute(
        "select data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', "
        "'publication_names', %s)",
        [slot, publication],
    ).fetchall()
    names: dict[int, str] = {}
    found: Counter[str] = Counter()
    for (data,) in rows:
        kind = data[:1]
        if kind == b"R":
            (oid,) = struct.unpack(">I", data[1:5])
            names[oid] = ".".join(part.decode() for part in data[5:].split(b"\0", 2)[:2])
        elif kind in (b"I", b"U", b"D"):
            found[names[struct.unpack(">I", data[1:5])[0]]] += 1
    return found


def _as_text(name: str, kind: str) -> str:
    if kind.startswith("numeric"):
        return f'trim_scale("{name}")::text'
    return f"""case when "{name}" is distinct from null then format('%s', "{name}") end"""


def _float(text: str | None) -> str | None:
    return None if text is None else repr(float(text))


def _text(value: Any) -> str | None:
    """PostgreSQL's text of a value of the lake, zeros at a number's end left out."""
    if value is None or isinstance(value, str):
        return value
    for kind, write in _WRITERS.items():
        if isinstance(value, kind):
            return write(value)
    return str(value)


def _decimal(value: Decimal) -> str:
    plain = format(value, "f")
    return (plain.rstrip("0").rstrip(".") if "." in plain else plain) or "0"


def _moment(value: datetime) -> str:
    micros = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value:%Y-%m-%d %H:%M:%S}{micros}{'' if value.tzinfo is None else '+00'}"


def _list(value: list[Any]) -> str:
    return "{" + ",".join("NULL" if each is None else str(_text(each)) for each in value) + "}"


# A datetime is a date and a boolean an int, so the order matters.
_WRITERS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "t" if value else "f",
    Decimal: _decimal,
    float: repr,
    datetime: _moment,
    date: date.isoformat,
    bytes: lambda value: "\\x" + value.hex(),
    list: _list,
}
