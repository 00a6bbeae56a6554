"""A small table with a rule of each kind, and change rows of it made by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from cdc_core.quality.options import UserRule
from cdc_core.quality.rules import Rule, rules_for
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableId, TableSchema

TABLE = TableSchema(
    TableId("public", "people"),
    16400,
    (
        Column("id", PgType(20, "int8"), optional=False),
        Column("na me", PgType(1043, "varchar"), modifier=9, optional=False),
        Column(
            "mood", PgType(90001, "mood", "public", TypeKind.ENUM, labels=("sad", "it's", "b\\s", 'q"', "new\nline"))
        ),
        Column("wealth", PgType(1700, "numeric")),
    ),
    primary_key=("id",),
)
NATURAL = {"id": pa.int64(), "na me": pa.string(), "mood": pa.string(), "wealth": pa.decimal128(38, 18)}
RESCUED = pa.map_(pa.string(), pa.string())
IMAGE = pa.struct([*(pa.field(name, kind) for name, kind in NATURAL.items()), pa.field("__rescued", RESCUED)])
AT = datetime(2026, 1, 1, tzinfo=UTC)


def schema_of(image: pa.StructType) -> pa.Schema:
    """The schema of change rows with this image."""
    return pa.schema(
        [
            ("__op", pa.string()),
            ("__commit_lsn", pa.int64()),
            ("__tx_index", pa.int64()),
            ("__lsn", pa.int64()),
            ("__xid", pa.int64()),
            ("__commit_ts", pa.timestamp("us", "UTC")),
            ("__unchanged", pa.list_(pa.string())),
            ("before", image),
            ("after", image),
        ]
    )


SCHEMA = schema_of(IMAGE)


def image(
    id: int | None = 1,
    name: str | None = "ann",
    mood: str | None = "sad",
    wealth: object = None,
    rescued: dict[str, str] | None = None,
) -> dict[str, Any]:
    found = None if rescued is None else list(rescued.items())
    return {"id": id, "na me": name, "mood": mood, "wealth": wealth, "__rescued": found}


def row(
    index: int,
    op: str | None = "c",
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    unchanged: tuple[str, ...] | None = (),
    lsn: int = 900,
    commit_lsn: int = 1000,
) -> dict[str, Any]:
    return {
        "__op": op,
        "__commit_lsn": commit_lsn,
        "__tx_index": index,
        "__lsn": lsn,
        "__xid": 7,
        "__commit_ts": AT,
        "__unchanged": None if unchanged is None else list(unchanged),
        "before": before,
        "after": after,
    }


def frame(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def rules(**users: str) -> tuple[Rule, ...]:
    """The table's rules with these of the user's: name=predicate."""
    return rules_for(TABLE, NATURAL, [(name, UserRule("public.people", text)) for name, text in users.items()])


RULES = rules(no_zoe="after.\"na me\" <> 'zoe'")

GOOD = [
    row(-1, "r", after=image()),
    row(0, after=image()),
    row(1, after=image(mood="it's")),
    row(2, after=image(mood="b\\s", name="äöüßé")),
    row(3, "u", after=image(name=None), unchanged=("na me",)),
    row(4, "d", before=image(name=None, mood=None)),
    row(5, "t"),
    row(6, after=image(wealth=None, rescued={"wealth": "NaN"})),
    row(7, after=image(name=None, rescued={"na me": "x"})),
    row(8, "u", before=image(id=5), after=image(id=None), unchanged=("id",)),
    row(9, after=image(mood=None)),
    row(10, after=image(mood='q"')),
    row(11, after=image(mood="new\nline"), unchanged=None),
    row(12, "d", before=image(id=None, rescued={"id": "x"})),
    row(13, after=image(id=None, rescued={"id": "x"})),
    row(14, after=image(name="")),
]
BAD = {
    "op_known": [row(20, "x", after=image()), row(20, None, after=image())],
    "position_valid": [
        row(-3, after=image()),
        row(1, after=image(), commit_lsn=0, lsn=0),
    ],
    "lsn_order": [row(21, after=image(), lsn=1001)],
    "image_present": [
        row(22, after=None),
        row(22, "r", before=image()),
        row(22, "d", after=image()),
        row(22, "t", after=image()),
        row(22, "t", before=image()),
    ],
    "key_not_null:id": [
        row(23, "d", before=image(id=None)),
        row(23, after=image(id=None)),
        row(23, "u", after=image(id=None), unchanged=("id",)),
        row(23, "u", before=image(), after=image(id=None), unchanged=("mood",)),
        row(23, after=image(id=None, rescued={"mood": "x"})),
    ],
    "not_null:na me": [
        row(24, after=image(name=None)),
        row(24, after=image(name=None), unchanged=("mood",)),
        row(24, after=image(name=None), unchanged=None),
        row(24, "r", after=image(name=None, rescued={"mood": "x"})),
    ],
    "max_length:na me": [row(25, after=image(name="abcdef")), row(25, "u", after=image(name="äöüßéä"))],
    "enum_member:mood": [
        row(26, after=image(mood="glad")),
        row(26, after=image(mood="")),
        row(26, after=image(mood="SAD")),
    ],
    "user:no_zoe": [row(27, after=image(name="zoe"))],
}
