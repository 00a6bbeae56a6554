"""Valid input of every kind, from a seeded generator: what the mutations start from."""

from __future__ import annotations

from random import Random

from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from tests.support import plain_pgoutput as plain
from tests.support.plain_pgoutput import UNCHANGED, Value

TIME_US = 1_700_000_000_000_000
_PIECES = ("", "0", "a", "plain text", "日本", "\\", "\t", "\n", "\r", "\\N", "N", "é" * 40, "x" * 300, "12", "-7.50")


def relations(random: Random) -> list[Relation]:
    """One to three relations of 0 to 6 columns."""
    return [_relation(random, 16_400 + number) for number in range(random.randint(1, 3))]


def frames(random: Random) -> list[bytes]:
    """The XLogData frames of a few transactions that the plain decoder reads."""
    known = relations(random)
    payloads: list[bytes] = []
    for number in range(random.randint(1, 3)):
        payloads += _transaction(random, known, announce=number == 0 or random.random() < 0.2, lsn=1000 * (number + 1))
    return [plain.frame(payload, 100 + index) for index, payload in enumerate(payloads)]


def copy_lines(random: Random) -> tuple[int, bytes]:
    """Lines of COPY's text format and their number of columns."""
    width = random.randint(1, 5)
    rows = [[_copy_value(random) for _ in range(width)] for _ in range(random.randint(0, 8))]
    return width, b"".join(plain.copy_line(row) for row in rows)


def _relation(random: Random, oid: int) -> Relation:
    columns = tuple(
        RelationColumn(f"c{index}", random.choice((20, 23, 25, 1700)), -1, random.random() < 0.3)
        for index in range(random.choice((0, 1, 2, 3, 6)))
    )
    return Relation(oid, "shop", f"t{oid}", random.choice(list(ReplicaIdentity)), columns)


def _transaction(random: Random, known: list[Relation], *, announce: bool, lsn: int) -> list[bytes]:
    out = [plain.begin(lsn, TIME_US, random.randint(1, 2**32 - 1))]
    if random.random() < 0.2:
        out.append(plain.origin(random.randint(0, 2**40), "elsewhere"))
    if announce:
        out += [plain.relation_message(relation) for relation in known]
    for _ in range(random.randint(0, 6)):
        out.append(_change(random, random.choice(known)))
    return [*out, plain.commit(lsn, lsn + 48, TIME_US)]


def _change(random: Random, relation: Relation) -> bytes:
    width = len(relation.columns)
    kind = random.choice("IIUUDDTMY")
    if kind == "I":
        return plain.insert(relation.oid, _row(random, width))
    if kind == "U":
        old = _row(random, width) if random.random() < 0.5 else None
        return plain.update(relation.oid, _row(random, width, toast=True), old, random.choice("KO"))
    if kind == "D":
        return plain.delete(relation.oid, _row(random, width), random.choice("KO"))
    if kind == "T":
        return plain.truncate([relation.oid], random.choice((0, 1, 3)))
    if kind == "M":
        return plain.message(random.randint(0, 2**40), "prefix", bytes(random.randrange(256) for _ in range(9)), True)
    return plain.type_message(50_000, "public", "mood")


def _row(random: Random, width: int, *, toast: bool = False) -> list[Value]:
    return [UNCHANGED if toast and random.random() < 0.2 else _value(random) for _ in range(width)]


def _value(random: Random) -> str | None:
    return None if random.random() < 0.2 else random.choice(_PIECES)


def _copy_value(random: Random) -> str | None:
    return None if random.random() < 0.2 else "".join(random.choice(_PIECES) for _ in range(random.randint(0, 2)))
