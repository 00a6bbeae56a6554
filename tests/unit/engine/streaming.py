"""A replication stream made of given messages, and a reader over it: no server."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from pathlib import Path

from cdc_core.decode.segment import Segment
from cdc_core.engine.reading.batch_builder import BatchBuilder
from cdc_core.engine.reading.segment_sorter import SegmentSorter
from cdc_core.engine.reading.slot_reader import BatchBounds, SlotReader
from cdc_core.lake.positions import ChangelogPosition
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.spool import Spool
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.support import plain_pgoutput as plain

TIME_US = 1_700_000_000_000_000


def relation(oid: int, name: str, *more: str) -> Relation:
    columns = [RelationColumn("id", 23, -1, True), *[RelationColumn(each, 25, -1, False) for each in more]]
    return Relation(oid, "shop", name, ReplicaIdentity.DEFAULT, tuple(columns))


ORDERS, CLIENTS = relation(16_400, "orders", "note"), relation(16_401, "clients")


def table_of(found: Relation, version: int = 1) -> TableSchema:
    kinds = {23: PgType(23, "int4"), 25: PgType(25, "text")}
    columns = tuple(Column(each.name, kinds[each.type_oid]) for each in found.columns)
    return TableSchema(TableId(found.namespace, found.name), found.oid, columns, ("id",), version=version)


def plan(**selection: object) -> TypingPlan:
    return TypingPlan(TypeOptions(), SelectionOptions(**selection))  # type: ignore[arg-type]


def transaction(commit_lsn: int, *payloads: bytes) -> list[bytes]:
    return [plain.begin(commit_lsn, TIME_US, 7), *payloads, plain.commit(commit_lsn, commit_lsn + 8, TIME_US)]


def insert(number: int, found: Relation = ORDERS) -> bytes:
    return plain.insert(found.oid, [str(number), *["n"] * (len(found.columns) - 1)])


def announce(*relations: Relation) -> list[bytes]:
    return [plain.relation_message(each) for each in relations]


class FakeStream:
    """Hands over what was sent; ``fail`` makes the next read raise."""

    def __init__(self) -> None:
        self.waiting: queue.Queue[Segment | Exception] = queue.Queue()
        self.taken = threading.Semaphore(0)
        self.wal_end = 0
        self.ticks = self.silences = 0
        self.closed = False
        self._lsn = 100

    def send(self, payloads: Sequence[bytes]) -> None:
        """One segment of these messages."""
        frames = []
        for payload in payloads:
            self._lsn += 1
            frames.append(plain.frame(payload, self._lsn))
        self.waiting.put(Segment.of(frames))

    def fail(self, error: Exception) -> None:
        self.waiting.put(error)

    def read(self, max_rows: int, max_bytes: int, max_seconds: float) -> Segment | None:
        try:
            found = self.waiting.get(timeout=max_seconds)
        except queue.Empty:
            self.silences += 1
            return None
        if isinstance(found, Exception):
            raise found
        self.taken.release()
        return found

    def tick(self) -> None:
        self.ticks += 1

    def close(self) -> None:
        self.closed = True


def reader(
    stream: FakeStream,
    folder: Path,
    positions: dict[TableId, ChangelogPosition] | None = None,
    rows: int = 1000,
    spool_bytes: int = 1 << 30,
    found: TypingPlan | None = None,
) -> SlotReader:
    bounds = BatchBounds(rows, 1 << 20, spool_bytes)
    folder.mkdir(parents=True, exist_ok=True)
    made = found or plan()
    sorter = SegmentSorter(lambda each, lsn: table_of(each))
    return SlotReader(stream, sorter, BatchBuilder(Spool(folder, Owner()), made, positions or {}), bounds)
