"""Records of logical messages (pg_logical_emit_message)."""

from __future__ import annotations

import base64

import numpy as np
import pyarrow as pa

from cdc_core.decode import LogicalMessage
from cdc_core.events.envelope.batch import TEXT, EventBatch, constant, struct, topics
from cdc_core.events.envelope.context import EnvelopeContext
from cdc_core.events.envelope.json import dumps, join
from cdc_core.events.envelope.record import one_record, schema_text, with_schema
from cdc_core.events.envelope.source_block import (
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    SourceFacts,
    source_schema,
    source_texts,
)
from cdc_core.events.envelope.transaction import EventNumbers, block_schema, block_texts
from cdc_core.events.envelope.typed_form import block_data, source_data
from cdc_core.schema import ConnectSchema
from cdc_core.types import BinaryHandlingMode

# Used as the collection of a transactional message in END records. Debezium prints a Java object's identity there,
# which differs for each message, so each message is counted separately.
COLLECTION = "io.debezium.connector.postgresql.LogicalDecodingMessageMonitor$LogicalDecodingMessageId@"


class MessageEvents:
    """Creates records of logical messages; created once per run. They have no context headers."""

    def __init__(self, context: EnvelopeContext) -> None:
        names = context.names
        self._context = context
        content = "bytes" if context.binary is BinaryHandlingMode.BYTES else "string"
        key = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.postgresql.MessageKey"),
            version=1,
            fields=(("prefix", OPTIONAL_STRING),),
        )
        message = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.postgresql.Message"),
            version=1,
            fields=(("prefix", OPTIONAL_STRING), ("content", ConnectSchema(content, optional=True))),
        )
        value = ConnectSchema(
            "struct",
            name=names.schema_name("io.debezium.connector.postgresql.MessageValue"),
            version=1,
            fields=(
                ("op", STRING),
                ("ts_ms", OPTIONAL_INT64),
                ("source", source_schema(names)),
                ("transaction", block_schema(names)),
                ("message", message),
            ),
        )
        self._schemas = (key, value)
        self._key, self._value = schema_text(key), schema_text(value)

    def make(
        self, message: LogicalMessage, orders: EventNumbers | None, now_ns: int, xmin: int | None = None
    ) -> pa.Table:
        """Return the record of one message. ``orders`` is its index in its transaction (of length 1), None without one.

        A message before the first transaction has no commit time: the current time is used.
        """
        facts = SourceFacts.of_message(message, message.commit_ts_us or now_ns // 1000, xmin)
        if self._context.outlet is not None:
            return self._context.outlet.records(self._batch(message, orders, now_ns, facts))
        source = source_texts(self._context, facts)
        prefix = dumps(message.prefix)
        payload = join(
            [
                f'{{"op":"m","ts_ms":{now_ns // 1_000_000},"source":',
                source,
                ',"transaction":',
                block_texts(facts.xid, facts.lsn, orders),
                f',"message":{{"prefix":{prefix},"content":{dumps(self._content(message.content))}}}}}',
            ],
            1,
        )
        key = with_schema(self._key, f'{{"prefix":{prefix}}}')
        value = with_schema(self._value, payload[0].as_py())
        return one_record(message.seq, 0, self._context.names.message_topic, key, value)

    def _batch(
        self, message: LogicalMessage, orders: EventNumbers | None, now_ns: int, facts: SourceFacts
    ) -> EventBatch:
        key, value = self._schemas
        content = message.content
        body = {
            "prefix": message.prefix,
            "content": content if self._context.binary is BinaryHandlingMode.BYTES else self._content(content),
        }
        columns = [
            pa.array(["m"], type=TEXT),
            pa.array([now_ns // 1_000_000], type=pa.int64()),
            source_data(self._context, facts).values,
            block_data(self._context, facts.xid, facts.lsn, orders).values,
            constant(body, dict(value.fields)["message"], 1).values,
        ]
        return EventBatch(
            np.array([message.seq]),
            np.zeros(1, dtype=np.int64),
            topics(self._context.names.message_topic, 1),
            constant({"prefix": message.prefix}, key, 1),
            struct(value, columns, np.ones(1, dtype=bool)),
        )

    def _content(self, content: bytes) -> str:
        """Encode by binary.handling.mode; plain bytes are base64 in JSON too."""
        if self._context.binary is BinaryHandlingMode.HEX:
            return content.hex()
        if self._context.binary is BinaryHandlingMode.BASE64_URL_SAFE:
            return base64.urlsafe_b64encode(content).decode()
        return base64.b64encode(content).decode()


def place_of(message: LogicalMessage) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """Return collection, seq, sub and commit LSN of a transactional message, for the transaction's counter."""
    return (
        f"{COLLECTION}{message.lsn:x}",
        np.array([message.seq]),
        np.zeros(1, dtype=np.int64),
        np.array([message.commit_lsn or 0]),
    )
