"""The data shared by all records of a connector: names, options, version, run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from cdc_core.events.envelope.json import dumps
from cdc_core.events.envelope.options import EnvelopeOptions
from cdc_core.events.envelope.outlet import Outlet
from cdc_core.events.envelope.record import lines
from cdc_core.events.envelope.routing import TopicRouting, routing_of
from cdc_core.schema import Names, SchemaOptions
from cdc_core.types import BinaryHandlingMode
from cdc_core.version import EVENT_VERSION

CONNECTOR = "postgresql"


class Mapper(Protocol):
    """PostgreSQL's text[N] → text[N], before the converter; may convert nulls to text (asterisks)."""

    def __call__(self, values: pa.Array, /) -> pa.Array:
        """Map all values of a column."""


class Plan(Protocol):
    """The selection's settings for one column of a table; ``selection.columns.ColumnPlan`` implements it.

    ``included`` is False for a column excluded from rows (it may still be part of the key). ``parameters`` are added to
    the field's schema in order.
    """

    @property
    def name(self) -> str:
        """The column's name."""

    @property
    def included(self) -> bool:
        """Whether rows contain it."""

    @property
    def mapper(self) -> Mapper | None:
        """Mask, hash or truncation of a character column."""

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Schema parameters to add."""

    @property
    def cut(self) -> int | None:
        """Length of a truncation, used instead of ``mapper``: it is applied to the converter's result."""


@dataclass(frozen=True, slots=True)
class EnvelopeContext:
    """Created once per run.

    ``skipped`` contains operations without records (letters of ``skipped.operations``). ``run_id`` distinguishes runs
    in the context headers. ``names`` has state (the topics it returned), all else is constant. ``outlet``: transforms
    and formats, None if records are written as JSON with schemas.
    """

    names: Names
    database: str
    schema: SchemaOptions
    options: EnvelopeOptions = field(default_factory=EnvelopeOptions)
    skipped: frozenset[str] = frozenset({"t"})
    binary: BinaryHandlingMode = BinaryHandlingMode.BYTES
    version: str = EVENT_VERSION
    task_id: str = "0"
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    outlet: Outlet | None = None
    routing: TopicRouting | None = None

    @classmethod
    def of(
        cls,
        schema: SchemaOptions,
        database: str,
        options: EnvelopeOptions | None = None,
        *,
        skipped: tuple[str, ...] = ("t",),
        binary: BinaryHandlingMode = BinaryHandlingMode.BYTES,
        version: str = EVENT_VERSION,
        outlet: Outlet | None = None,
    ) -> EnvelopeContext:
        """Create a context from the packages' options."""
        made, routing = options or EnvelopeOptions(), routing_of(schema)
        names = Names(schema, None if routing is None else routing.topic)
        return cls(names, database, schema, made, frozenset(skipped), binary, version, outlet=outlet, routing=routing)

    def header_values(self) -> dict[str, str]:
        """Return the headers of every data record; empty if they are disabled."""
        if not self.options.extended_headers_enabled:
            return {}
        return {
            "__debezium.context.connectorLogicalName": self.names.prefix,
            "__debezium.context.taskId": self.task_id,
            "__debezium.context.connectorName": CONNECTOR,
            "__debezium.context.runId": self.run_id,
        }

    def context_headers(self) -> str:
        """Return the same as the content of a JSON list."""
        return ",".join(
            dumps({"key": name, "value": {"schema": {"type": "string", "optional": False}, "payload": value}})
            for name, value in self.header_values().items()
        )

    def lines(self, records: pa.Table) -> list[str]:
        """Return one JSON line per record, without a line end."""
        return lines(records) if self.outlet is None else self.outlet.lines(records)
