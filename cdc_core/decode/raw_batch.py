"""RawBatch: collected, undecoded messages of one relation, which the slot reader spools and the workers decode.

Truncates and logical messages are never in a spool file of row changes; they have separate batches.
"""

from __future__ import annotations

import pyarrow as pa

# One row a message, in stream order.
#   seq              ordinal of the message in this run of the reader: orders rows across relations
#   lsn              WAL start of the message's XLogData frame (Debezium's source.lsn)
#   commit_lsn       LSN of the transaction's commit record, from its Begin message: half of the position
#   tx_index         ordinal of the row message (I, U, D, T) in its transaction, from 0: the other half of the
#                    position. The same at every replay.
#   prior_end_lsn    end LSN of the last Commit (or LSN of the last non-transactional Message) before it,
#                    0 for none: source.sequence[0]
#   xid              top-level transaction id, unsigned 32 bit
#   commit_ts_us     commit time, microseconds since 1970-01-01T00:00:00Z
#   origin           name of the replication origin, null for none;  origin_lsn its LSN there
#   payload          the pgoutput message, from its kind byte on
RAW_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("lsn", pa.int64(), nullable=False),
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("tx_index", pa.int64(), nullable=False),
        pa.field("prior_end_lsn", pa.int64(), nullable=False),
        pa.field("xid", pa.int64(), nullable=False),
        pa.field("commit_ts_us", pa.int64(), nullable=False),
        pa.field("origin", pa.string()),
        pa.field("origin_lsn", pa.int64()),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)

# Schema metadata of a spool file: TableSchema.to_json() of the version in force.
TABLE_KEY = b"wal2lake.table"
RELATION_KEY = b"wal2lake.relation"
