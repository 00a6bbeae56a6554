"""A source table with one column for every type, its rows, and what the server itself says that they mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import psycopg

from tests.support.cluster import Cluster
from tests.unit.types.cases import ALL, Case, drawn

# Whatever a database prescribes to its sessions, both roads must read the same.
STRANGE = (
    *("datestyle = 'SQL, DMY'", "intervalstyle = 'iso_8601'", "extra_float_digits = -5", "bytea_output = 'escape'"),
    *("timezone = 'Asia/Kathmandu'", "xmloption = 'content'"),
)
PLAIN = (
    "set datestyle = 'ISO, YMD'; set intervalstyle = 'postgres'; set extra_float_digits = 1;"
    " set bytea_output = 'hex'; set timezone = 'UTC'; set lc_monetary = 'C'"
)


@dataclass(frozen=True)
class Meaning:
    """What the server says of one value: what the lake must hold, and its text where the lake can hold nothing."""

    value: Any
    text: str | None

    @property
    def is_rescued(self) -> bool:
        """Whether the lake's type cannot hold it."""
        return self.value is None and self.text is not None


@dataclass(frozen=True)
class SourceTable:
    """``public.every_type``: ``id``, ``marker``, and a column ``c<n>`` for each of ``cases``."""

    cluster: Cluster
    database: str
    cases: dict[str, Case]

    @classmethod
    def make(cls, cluster: Cluster, database: str, only: Collection[str] = ALL) -> SourceTable:
        """Create the types and the table for all of ``only`` that this server knows; the database sets odd things."""
        with cluster.connect(database) as connection:
            available = {name for (name,) in connection.execute("select name from pg_available_extensions")}
            version = connection.info.server_version // 10_000
            cases = {
                name: case
                for name, case in ALL.items()
                if name in only
                and (not case.extension or case.extension in available)
                and case.least_version <= version
            }
            if not _reads_xml(connection):
                cases.pop("xml", None)
            for extension in {case.extension for case in cases.values()} - {""}:
                connection.execute(f"create extension {extension}")
            for setup in filter(None, (case.setup for case in cases.values())):
                connection.execute(setup)
            columns = "".join(f", c{place} {case.sql_type}" for place, case in enumerate(cases.values()))
            connection.execute(f"create table every_type (id int primary key, marker int{columns})")
            for setting in STRANGE:
                connection.execute(f'alter database "{database}" set {setting}')
        return cls(cluster, database, cases)

    def column(self, name: str) -> str:
        """The column of a case."""
        return f"c{list(self.cases).index(name)}"

    def draw(self, count: int, seed: int) -> list[tuple[str | None, ...]]:
        """Rows of texts, the same for the same seed. A case has the same ones on each server that knows it."""
        columns = [_drawn(name, count, seed + place) for place, name in enumerate(ALL) if name in self.cases]
        return list(zip(*columns, strict=True))

    def insert(self, rows: list[tuple[str | None, ...]], first_id: int) -> None:
        """Insert rows of texts under ids that count from ``first_id``."""
        casts = ", ".join(f"%s{case.made_by}::{case.sql_type}" for case in self.cases.values())
        with self.plain() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(
                f"insert into every_type values (%s, 0, {casts})",
                [(first_id + place, *row) for place, row in enumerate(rows)],
            )

    def meanings(self, name: str) -> dict[int, Meaning]:
        """What each row's value of a case means, by id."""
        column, case = self.column(name), self.cases[name]
        with self.plain() as connection:
            sql = f"select id, {case.meaning}, v::text from (select id, {column} as v from every_type) as t"
            return {row: Meaning(value, text) for row, value, text in connection.execute(sql)}

    def plain(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A session whose settings are the server's usual ones."""
        connection = self.cluster.connect(self.database)
        connection.execute(PLAIN)
        return connection


@cache
def _drawn(name: str, count: int, number: int) -> list[str | None]:
    """To draw takes a tenth of a second, and each server asks for the same."""
    return drawn(ALL[name], count, number)


def _reads_xml(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
    try:
        connection.execute("select '<a/>'::xml")
    except psycopg.errors.FeatureNotSupported:
        return False
    return True


def same(found: Any, expected: Any) -> bool:
    """Whether a lake value is what the server means. JSON, which says less, is read as the found value's type."""
    if found is None or expected is None:
        return found is expected
    if isinstance(expected, dict):
        return bool(dict(found) == expected)
    if isinstance(expected, list):
        entries = [found["x"], found["y"]] if isinstance(found, dict) else found
        return len(entries) == len(expected) and all(map(same, entries, expected))
    return _same_scalar(found, expected)


def _same_scalar(found: Any, expected: Any) -> bool:
    if isinstance(found, float):
        wanted = float(expected)
        return found == wanted or (math.isnan(found) and math.isnan(wanted)) or _same_float32(found, wanted)
    if isinstance(found, datetime):
        moment = datetime.fromisoformat(expected) if isinstance(expected, str) else expected
        return bool(found.replace(tzinfo=None) == moment.replace(tzinfo=None))
    if isinstance(expected, str) and not isinstance(found, str):
        read: dict[type, Callable[[str], Any]] = {Decimal: Decimal, date: date.fromisoformat, bytes: bytes.fromhex}
        return bool(found == read[type(found)](expected))
    return type(found) is type(expected) and bool(found == expected)


def _same_float32(found: float, expected: float) -> bool:
    """A float of 32 bits against the shortest decimal that names it."""
    return bool(np.float32(found) == np.float32(expected) == found)
