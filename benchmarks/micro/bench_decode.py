"""How fast the decode room is on one core: rows a second, best and spread of several rounds.

    python benchmarks/micro/bench_decode.py [rows] [rounds]

Rows of ten columns, in 1,000-row and in 1-row transactions, with nulls, updates with whole old rows, and the same rows
as COPY text. The stream is made in memory: no server, no Spark.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from cdc_core.decode.copy_text import decode_copy
from cdc_core.decode.pgoutput import SortedSegment, StreamState, decode_rows, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema
from tests.support import plain_pgoutput as plain

OID = 16_400
NAMES = ("id", "customer", "product", "quantity", "price", "paid", "note", "ordered_at", "region", "token")
RELATION = Relation(
    OID,
    "public",
    "orders",
    ReplicaIdentity.FULL,
    tuple(RelationColumn(name, 25, -1, name == "id") for name in NAMES),
)
TABLE = TableSchema(TableId("public", "orders"), OID, ())
TIME_US = 1_700_000_000_000_000


def row(number: int, nulls: bool = False) -> list[plain.Value]:
    return [
        str(number),
        str(number % 10_000),
        str(number % 977),
        None if nulls and number % 3 == 0 else str(number % 50),
        f"{number % 100_000}.25",
        None if nulls and number % 4 == 0 else "t",
        None if nulls and number % 2 == 0 else f"note of order {number} for the customer",
        "2026-11-21 08:15:00.123456+00",
        "region-7",
        f"{number:032x}",
    ]


def segment(rows: int, per_transaction: int, make: Callable[[int], bytes]) -> Segment:
    frames = [plain.frame(plain.relation_message(RELATION))]
    lsn = 1 << 32
    for first in range(0, rows, per_transaction):
        commit_lsn = lsn + 200 * per_transaction
        frames.append(plain.frame(plain.begin(commit_lsn, TIME_US, first + 1), lsn))
        for number in range(first, min(first + per_transaction, rows)):
            lsn += 176
            frames.append(plain.frame(make(number), lsn))
        lsn = commit_lsn + 48
        frames.append(plain.frame(plain.commit(commit_lsn, lsn, TIME_US), lsn))
    return Segment.of(frames)


def measure(name: str, rows: int, rounds: int, work: Callable[[], object]) -> None:
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    best, worst = min(seconds), max(seconds)
    print(f"{name:48s} {rows / best / 1e6:6.2f} M rows/s (worst round {rows / worst / 1e6:.2f})", flush=True)


def stream_case(name: str, rows: int, rounds: int, stream: Segment) -> None:
    def sort() -> SortedSegment:
        return sort_segment(stream, StreamState(), lambda relation, lsn: TABLE)

    batches = [run.raw for run in sort().runs]
    measure(f"{name}: sort", rows, rounds, sort)
    measure(f"{name}: decode", rows, rounds, lambda: [decode_rows(raw, RELATION) for raw in batches])
    measure(f"{name}: sort and decode", rows, rounds, lambda: [decode_rows(run.raw, RELATION) for run in sort().runs])


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    inserts = segment(rows, 1000, lambda n: plain.insert(OID, row(n)))
    print(f"{rows} rows of {len(NAMES)} columns, {len(inserts.buffer) / rows:.0f} bytes each; best of {rounds} rounds")
    stream_case("inserts, 1,000 a transaction", rows, rounds, inserts)
    stream_case("inserts, 1 a transaction", rows, rounds, segment(rows, 1, lambda n: plain.insert(OID, row(n))))
    stream_case(
        "inserts with nulls", rows, rounds, segment(rows, 1000, lambda n: plain.insert(OID, row(n, nulls=True)))
    )
    stream_case(
        "updates with whole old rows",
        rows,
        rounds,
        segment(rows, 1000, lambda n: plain.update(OID, row(n), row(n + 1))),
    )
    lines = b"".join(plain.copy_line(row(n)) for n in range(rows))  # type: ignore[arg-type]
    measure("COPY text", rows, rounds, lambda: decode_copy(lines, NAMES))
    escaped = b"".join(plain.copy_line(row(n, nulls=True)) for n in range(rows))  # type: ignore[arg-type]
    measure("COPY text with nulls", rows, rounds, lambda: decode_copy(escaped, NAMES))


if __name__ == "__main__":
    main()
