"""pg_type → PgType: types resolved through arrays, domains and ranges to the types of their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cdc_core.postgres.catalog.money import decimals
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.sqlstate import translated
from cdc_core.schema import MONEY, PgType, TypeKind

_TYPES = """
WITH RECURSIVE needed AS (
    SELECT oid FROM unnest(%(oids)s::oid[]) AS given(oid)
    UNION
    SELECT inner_oid FROM needed JOIN LATERAL ({inner}) AS step(oid, inner_oid) USING (oid) WHERE inner_oid <> 0
)
SELECT t.oid::bigint, t.typname, n.nspname, t.typtype::text, t.typcategory = 'A' AND t.typelem <> 0,
       coalesce(step.inner_oid, 0)::bigint, t.typtypmod, t.typdelim::text,
       (SELECT array_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = t.oid)
FROM needed JOIN pg_type t USING (oid) JOIN pg_namespace n ON n.oid = t.typnamespace
JOIN LATERAL ({inner}) AS step(oid, inner_oid) ON true
"""
_INNER = """
SELECT i.oid, CASE WHEN i.typcategory = 'A' AND i.typelem <> 0 THEN i.typelem
                   WHEN i.typtype = 'd' THEN i.typbasetype
                   WHEN i.typtype IN ({ranges}) THEN
                        (SELECT r.rngsubtype FROM pg_range r WHERE i.oid IN ({range_columns}))
                   ELSE 0 END
FROM pg_type i WHERE i.oid = {outer}.oid
"""

# Whether types show names, or contain money, or consist of such types. An output function is STABLE, not IMMUTABLE, if
# its texts depend on settings of the session or on the catalogue. Those of ``pinned`` types depend on settings that all
# sessions have.
_CONTENTS = """
WITH RECURSIVE parts(whole, oid) AS (
    SELECT oid, oid FROM unnest(%(oids)s::oid[]) AS given(oid)
    UNION
    SELECT p.whole, inside.oid FROM parts p JOIN pg_type t ON t.oid = p.oid
    JOIN LATERAL (
        SELECT t.typelem WHERE t.typcategory = 'A' UNION ALL SELECT t.typbasetype
        UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN ({range_columns})
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped
    ) AS inside(oid) ON inside.oid <> 0
)
SELECT p.whole::bigint,
       bool_or(f.provolatile = 's' AND (t.typnamespace <> 'pg_catalog'::regnamespace OR t.typname <> ALL(%(pinned)s))),
       bool_or(t.oid = %(money)s)
FROM parts p JOIN pg_type t ON t.oid = p.oid AND t.typtype = 'b' AND t.typelem = 0
JOIN pg_proc f ON f.oid = t.typoutput GROUP BY p.whole
"""
PINNED = ("date", "timestamp", "timestamptz", "interval", "money")
"""Types whose texts depend on settings that every session of wal2lake has, and on nothing else."""


class TypeCatalog:
    """Types by oid, each read once. As in Debezium, a run uses an enum's labels as of its start; so with the decimals
    of money.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._types: dict[int, PgType] = {}
        self._former: dict[int, PgType] = {}
        self._money_scale: int | None = None

    @property
    def money_scale(self) -> int:
        """The decimals of money in this database. Raises SourceError or TransientError."""
        if self._money_scale is None:
            self._money_scale = decimals(self._connection)
        return self._money_scale

    def remember(self, types: Iterable[PgType]) -> None:
        """Add descriptions that were recorded earlier, for types that no longer exist when a change is read."""
        for each in types:
            self._former[each.oid] = each

    def load(self, oids: Iterable[int]) -> None:
        """Read the types that are not loaded yet, with one query. Raises SourceError or TransientError."""
        missing = sorted({oid for oid in oids if oid not in self._types})
        if not missing:
            return
        multi = self._connection.info.server_version >= 140000
        ranges = "'r', 'm'" if multi else "'r'"
        columns = "r.rngtypid, r.rngmultitypid" if multi else "r.rngtypid"
        inner = [_INNER.format(ranges=ranges, range_columns=columns, outer=outer) for outer in ("needed", "t")]
        query = _TYPES.replace("{inner}", inner[0], 1).replace("{inner}", inner[1], 1)
        with translated("reading the types of columns"):
            rows = self._connection.execute(query, {"oids": missing}).fetchall()
            arguments = {"oids": [row[0] for row in rows], "pinned": list(PINNED), "money": MONEY}
            contents = self._connection.execute(_CONTENTS.format(range_columns=columns), arguments).fetchall()
        inside = {oid: has for oid, *has in contents}
        row_of = {row[0]: (*row, *inside.get(row[0], (False, False))) for row in rows}
        built: dict[int, PgType] = {}
        for oid in row_of:
            built[oid] = self._build(oid, row_of, built)
        self._types.update(built)

    def load_enums(self) -> None:
        """Read all existing enums, so that a label added later is not used. Raises SourceError or TransientError."""
        with translated("reading the enums"):
            rows = self._connection.execute("SELECT oid::bigint FROM pg_type WHERE typtype = 'e'").fetchall()
        self.load(row[0] for row in rows)

    def __getitem__(self, oid: int) -> PgType:
        """Return a type; one that no longer exists keeps its last description, else is an unknown base type."""
        return self._types.get(oid) or self._former.get(oid) or PgType(oid, f"unknown_{oid}", "")

    def _build(self, oid: int, row_of: dict[int, tuple[Any, ...]], built: dict[int, PgType]) -> PgType:
        if oid in built:
            return built[oid]
        if oid not in row_of:
            return self[oid]
        _, name, namespace, kind, is_array, inner_oid, modifier, delimiter, labels, names, has_money = row_of[oid]
        inner = self._build(inner_oid, row_of, built) if inner_oid else None
        type_kind = TypeKind.ARRAY if is_array else TypeKind(kind)
        scale = self.money_scale if has_money and inner is None else None
        labels = tuple(labels or ())
        built[oid] = PgType(oid, name, namespace, type_kind, inner, modifier, labels, scale, names, delimiter)
        return built[oid]
