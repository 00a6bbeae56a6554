"""pgoutput, protocol version 1: sorts segments into relation runs and decodes row messages to columns."""

from cdc_core.decode.pgoutput.classify import sort_segment
from cdc_core.decode.pgoutput.not_utf8 import separated
from cdc_core.decode.pgoutput.relation import parse_relation, relation_message
from cdc_core.decode.pgoutput.stream_state import (
    Announced,
    LogicalMessage,
    OpenTransaction,
    RelationRun,
    SortedSegment,
    StreamState,
    Truncate,
)
from cdc_core.decode.pgoutput.tuples import decode_rows

__all__ = [
    "Announced",
    "LogicalMessage",
    "OpenTransaction",
    "RelationRun",
    "SortedSegment",
    "StreamState",
    "Truncate",
    "decode_rows",
    "parse_relation",
    "relation_message",
    "separated",
    "sort_segment",
]
