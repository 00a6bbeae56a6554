"""The data shared by all records of a connector: names, options, version, run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from cdc_core.envelope.json import dumps
from cdc_core.envelope.options import EnvelopeOptions
from cdc_core.schema.naming import Names
from cdc_core.schema.options import SchemaOptions
from cdc_core.types.options import BinaryHandlingMode
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
    in the context headers. ``names`` has state (the topics it returned), all else is constant.
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
    ) -> EnvelopeContext:
        """Create a context from the packages' options."""
        return cls(Names(schema), database, schema, options or EnvelopeOptions(), frozenset(skipped), binary, version)

    def context_headers(self) -> str:
        """The headers of every data record, as the content of a JSON list; empty if they are disabled."""
        if not self.options.extended_headers_enabled:
            return ""
        values = {
            "connectorLogicalName": self.names.prefix,
            "taskId": self.task_id,
            "connectorName": CONNECTOR,
            "runId": self.run_id,
        }
        return ",".join(
            dumps(
                {
                    "key": f"__debezium.context.{name}",
                    "value": {"schema": {"type": "string", "optional": False}, "payload": value},
                }
            )
            for name, value in values.items()
        )
