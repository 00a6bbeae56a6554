"""Output plug-ins other than pgoutput: what one is, and the one place where they are registered.

Each plug-in has a room of its own in this package. A room has a translator, which turns the plug-in's messages into
pgoutput's messages; everything after it (sorting, spool, workers, events) knows one protocol only. ``TRANSLATORS`` in
``cdc_core.decode.plugins`` is the registry: another plug-in is one more room and one more line there.

A translator finds what pgoutput sends and the plug-in does not, such as a table's oid and its replica identity, through
``Relations``: one request for each format of a table's rows, never one for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cdc_core.decode.segment import Segment
from cdc_core.schema import Relation, TableId


@dataclass(frozen=True, slots=True)
class SeenColumn:
    """A column as a row message shows it: ``format`` is the server's text of type and modifier, empty if not sent."""

    name: str
    type_oid: int
    format: str = ""


class Relations(Protocol):
    """Completes what row messages show of a table (``cdc_core.postgres.replication.seen_relations``)."""

    def is_captured(self, table: TableId) -> bool:
        """Whether the table is captured; the messages of other tables are only counted."""

    def oid(self, table: TableId) -> int:
        """Return the oid of the table that has, or last had, the name; 0 if it was never seen."""

    def named(self, name: str) -> list[TableId]:
        """Return the captured tables of this name in any schema, of those that were seen."""

    def complete(self, table: TableId, columns: Sequence[SeenColumn]) -> Relation:
        """Return the relation of rows that show exactly these columns, in their order."""

    def extended(self, table: TableId, columns: Sequence[SeenColumn]) -> Relation:
        """Return the relation of rows that show these columns and perhaps not all: those of the catalogue are added."""


class Translator(Protocol):
    """Turns a plug-in's messages into pgoutput's. For one thread and one connection."""

    def feed(self, segment: Segment) -> Iterable[Segment]:
        """Return the messages that can be passed on, in stream order; an incomplete transaction may be kept.

        The segments must all be taken before the next call.

        Raises ProtocolError for messages that the plug-in does not send.
        """

    @property
    def is_open(self) -> bool:
        """Whether messages are kept: then no position beyond the last message passed on may be confirmed."""

    def close(self) -> None:
        """Release kept transactions and their files."""


class NoTranslator:
    """The translator of pgoutput itself."""

    is_open = False

    def feed(self, segment: Segment) -> Iterable[Segment]:
        """Return the segment."""
        return [segment]

    def close(self) -> None:
        """Nothing is kept."""
