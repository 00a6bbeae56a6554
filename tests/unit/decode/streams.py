"""A small stream with every kind of message in it, for the tests of this folder."""

from cdc_core.decode.pgoutput import SortedSegment, StreamState, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema
from tests.support import plain_pgoutput as plain

TIME_US = 1_700_000_000_000_000
ORDERS = Relation(
    16_400,
    "shop",
    "orders",
    ReplicaIdentity.FULL,
    (RelationColumn("id", 23, -1, True), RelationColumn("note", 25, -1, False)),
)
CLIENTS = Relation(16_401, "shop", "clients", ReplicaIdentity.DEFAULT, (RelationColumn("id", 23, -1, True),))


def table_of(relation: Relation) -> TableSchema:
    return TableSchema(TableId(relation.namespace, relation.name), relation.oid, ())


def sort(payloads: list[bytes], state: StreamState | None = None, describe=None) -> SortedSegment:
    """Sort messages as one segment; message i has LSN 100 + i."""
    frames = [plain.frame(payload, 100 + index) for index, payload in enumerate(payloads)]
    state = StreamState() if state is None else state
    return sort_segment(Segment.of(frames), state, describe or (lambda relation, xid: table_of(relation)))


def transaction(*payloads: bytes, commit_lsn: int = 1000, xid: int = 7) -> list[bytes]:
    return [
        plain.begin(commit_lsn, TIME_US, xid),
        *payloads,
        plain.commit(commit_lsn, commit_lsn + 48, TIME_US),
    ]


def announced() -> StreamState:
    """The state behind a segment that announced both relations."""
    state = StreamState()
    sort(transaction(plain.relation_message(ORDERS), plain.relation_message(CLIENTS)), state)
    return state
