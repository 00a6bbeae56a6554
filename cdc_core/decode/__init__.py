"""Vectorized decoding of the server's data: replication messages and COPY text to text columns.

Messages  A ``Segment`` is received bytes (``HEADER``, ``FRAME_HEADER``). A ``Translator`` makes pgoutput's messages of
          another plug-in's (``translator`` by the plug-in's name, ``NoTranslator`` for pgoutput itself; ``SeenColumn``
          is what it knows of a table). ``sort_segment`` sorts a segment under a ``StreamState`` into a
          ``SortedSegment``: a ``RelationRun`` for each run of rows, ``Truncate``, ``LogicalMessage``,
          ``TransactionMark`` (``TransactionCounts``) and the ``OpenTransaction`` at its end.
Rows      ``decode_rows`` makes columns of text (``RawColumns``, ``TupleBatch``) of undecoded rows (``RAW_SCHEMA``,
          with the metadata ``RELATION_KEY`` and ``TABLE_KEY``); ``separated`` takes out rows that are not UTF-8.
          ``LineCutter`` and ``decode_copy`` do the same for COPY.

Bytes that do not follow the protocol raise ProtocolError. A state belongs to one stream and one thread; everything
else is a pure function.

Not behind this door: types of values (``cdc_core.types``), and connections (``cdc_core.postgres``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.decode.copy_text import LineCutter as LineCutter
    from cdc_core.decode.copy_text import decode_copy as decode_copy
    from cdc_core.decode.pgoutput.classify import sort_segment as sort_segment
    from cdc_core.decode.pgoutput.not_utf8 import separated as separated
    from cdc_core.decode.pgoutput.stream_state import LogicalMessage as LogicalMessage
    from cdc_core.decode.pgoutput.stream_state import OpenTransaction as OpenTransaction
    from cdc_core.decode.pgoutput.stream_state import RelationRun as RelationRun
    from cdc_core.decode.pgoutput.stream_state import SortedSegment as SortedSegment
    from cdc_core.decode.pgoutput.stream_state import StreamState as StreamState
    from cdc_core.decode.pgoutput.stream_state import Truncate as Truncate
    from cdc_core.decode.pgoutput.tuples import decode_rows as decode_rows
    from cdc_core.decode.plugin import NoTranslator as NoTranslator
    from cdc_core.decode.plugin import SeenColumn as SeenColumn
    from cdc_core.decode.plugin import Translator as Translator
    from cdc_core.decode.plugins import translator as translator
    from cdc_core.decode.raw_batch import RAW_SCHEMA as RAW_SCHEMA
    from cdc_core.decode.raw_batch import RELATION_KEY as RELATION_KEY
    from cdc_core.decode.raw_batch import TABLE_KEY as TABLE_KEY
    from cdc_core.decode.raw_columns import RawColumns as RawColumns
    from cdc_core.decode.raw_columns import TupleBatch as TupleBatch
    from cdc_core.decode.segment import FRAME_HEADER as FRAME_HEADER
    from cdc_core.decode.segment import HEADER as HEADER
    from cdc_core.decode.segment import Segment as Segment
    from cdc_core.decode.transaction_mark import TransactionCounts as TransactionCounts
    from cdc_core.decode.transaction_mark import TransactionMark as TransactionMark

lazily(
    __name__,
    {
        "FRAME_HEADER": "segment",
        "HEADER": "segment",
        "LineCutter": "copy_text",
        "LogicalMessage": "pgoutput.stream_state",
        "NoTranslator": "plugin",
        "OpenTransaction": "pgoutput.stream_state",
        "RAW_SCHEMA": "raw_batch",
        "RELATION_KEY": "raw_batch",
        "RawColumns": "raw_columns",
        "RelationRun": "pgoutput.stream_state",
        "SeenColumn": "plugin",
        "Segment": "segment",
        "SortedSegment": "pgoutput.stream_state",
        "StreamState": "pgoutput.stream_state",
        "TABLE_KEY": "raw_batch",
        "TransactionCounts": "transaction_mark",
        "TransactionMark": "transaction_mark",
        "Translator": "plugin",
        "Truncate": "pgoutput.stream_state",
        "TupleBatch": "raw_columns",
        "decode_copy": "copy_text",
        "decode_rows": "pgoutput.tuples",
        "separated": "pgoutput.not_utf8",
        "sort_segment": "pgoutput.classify",
        "translator": "plugins",
    },
)
