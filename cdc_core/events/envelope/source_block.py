"""The ``source`` struct: the origin of a record."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.decode import LogicalMessage, Truncate
from cdc_core.events.envelope.context import CONNECTOR, EnvelopeContext
from cdc_core.events.envelope.json import TEXT, dumps, join, quoted
from cdc_core.schema import ConnectSchema, Names

STREAMING = "false"
MARKERS = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "false", "incremental")

STRING = ConnectSchema("string")
OPTIONAL_STRING = ConnectSchema("string", optional=True)
INT64 = ConnectSchema("int64")
OPTIONAL_INT64 = ConnectSchema("int64", optional=True)


def source_schema(names: Names) -> ConnectSchema:
    """Return the struct's schema. Streaming leaves ``snapshot`` unset, so that readers get its default."""
    snapshot = ConnectSchema(
        "string",
        optional=True,
        name="io.debezium.data.Enum",
        version=1,
        parameters=(("allowed", ",".join(MARKERS)),),
        default=STREAMING,
        has_default=True,
    )
    return ConnectSchema(
        "struct",
        name=names.schema_name("io.debezium.connector.postgresql.Source"),
        version=1,
        fields=(
            ("version", STRING),
            ("connector", STRING),
            ("name", STRING),
            ("ts_ms", INT64),
            ("snapshot", snapshot),
            ("db", STRING),
            ("sequence", OPTIONAL_STRING),
            ("ts_us", OPTIONAL_INT64),
            ("ts_ns", OPTIONAL_INT64),
            ("schema", STRING),
            ("table", STRING),
            ("txId", OPTIONAL_INT64),
            ("lsn", OPTIONAL_INT64),
            ("xmin", OPTIONAL_INT64),
            ("origin", OPTIONAL_STRING),
            ("origin_lsn", OPTIONAL_INT64),
        ),
    )


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What the ``source`` structs of N records of one table contain; messages have neither schema nor table.

    Shape:  all arrays[N].

    Units:  ``ts_us`` is microseconds since 1970-01-01T00:00:00Z; milliseconds are rounded down.

    Nulls:  ``xid``, ``origin``, ``origin_lsn`` may be null; ``prior_end_lsn`` 0 means none and is written as null.

    ``shows_lsn`` False leaves ``source.lsn`` null; ``source.sequence`` contains it in any case.
    """

    schema: str
    table: str
    ts_us: pa.Array
    lsn: pa.Array
    prior_end_lsn: pa.Array
    xid: pa.Array
    origin: pa.Array
    origin_lsn: pa.Array
    marker: str | pa.Array = STREAMING
    xmin: int | None = None
    shows_lsn: bool = True

    @classmethod
    def of_message(
        cls, message: Truncate | LogicalMessage, ts_us: int, xmin: int | None, schema: str = "", table: str = ""
    ) -> SourceFacts:
        """Return the facts of the one record of a message that is not a row's."""

        def number(value: int | None) -> pa.Array:
            return pa.array([value], type=pa.int64())

        return cls(
            schema,
            table,
            ts_us=number(ts_us),
            lsn=number(message.lsn),
            prior_end_lsn=number(message.prior_end_lsn),
            xid=number(message.xid),
            origin=pa.array([message.origin], type=pa.string()),
            origin_lsn=number(message.origin_lsn),
            xmin=xmin,
        )


def source_texts(context: EnvelopeContext, facts: SourceFacts) -> pa.Array:
    """Return the struct of every record, as JSON text."""
    rows = len(facts.ts_us)
    micros = facts.ts_us.to_numpy()
    head = (
        f'{{"version":{dumps(context.version)},"connector":"{CONNECTOR}","name":{dumps(context.names.prefix)},"ts_ms":'
    )
    return join(
        [
            head,
            pa.array(micros // 1000),
            ',"snapshot":"',
            facts.marker,
            f'","db":{dumps(context.database)},"sequence":"',
            sequence_texts(facts.prior_end_lsn, facts.lsn, '\\"'),
            '","ts_us":',
            facts.ts_us,
            ',"ts_ns":',
            pa.array(micros * 1000),
            f',"schema":{dumps(facts.schema)},"table":{dumps(facts.table)},"txId":',
            facts.xid,
            ',"lsn":',
            facts.lsn if facts.shows_lsn else "null",
            f',"xmin":{dumps(facts.xmin)},"origin":',
            "null" if facts.origin.null_count == rows else quoted(facts.origin),
            ',"origin_lsn":',
            "null" if facts.origin_lsn.null_count == rows else facts.origin_lsn,
            "}",
        ],
        rows,
    )


def sequence_texts(prior_end_lsn: pa.Array, lsn: pa.Array, quote: str) -> pa.Array:
    """Return ``source.sequence``: the end of the last transaction or null, and the record's LSN, as text of a list.

    ``quote`` is escaped if the text is inside a JSON text.
    """
    prior = prior_end_lsn.to_numpy()
    return join(["[", _in_quotes(pa.array(prior, mask=prior == 0), quote), f",{quote}", lsn, f"{quote}]"], len(lsn))


def _in_quotes(numbers: pa.Array, quote: str) -> pa.Array:
    """Return numbers in quotes; nulls stay null."""
    text = join([quote, numbers, quote], len(numbers))
    return pc.if_else(pc.is_valid(numbers), text, pa.scalar(None, TEXT)) if numbers.null_count else text
