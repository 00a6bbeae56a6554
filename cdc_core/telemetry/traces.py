"""A round as a trace: one span, and one below it for each of its tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

_MOST_TABLES = 50


@dataclass(frozen=True, slots=True)
class TracedTable:
    """A table's part of a round, and the seconds that its task took.

    ``facts`` are numbers, names and positions. ``error`` is why it was not merged, empty if it was.
    """

    name: str
    seconds: float
    facts: Mapping[str, str | int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class TracedRound:
    """A round, or a snapshot of a table, that ended at ``ended_ns`` (since 1970) after ``seconds``."""

    name: str
    ended_ns: int
    seconds: float
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    tables: Sequence[TracedTable] = ()


def spans(traced: TracedRound, resource: Resource, scope: InstrumentationScope) -> Iterator[ReadableSpan]:
    """Yield the spans of a round: its own, and those of the tables that failed or took longest, fifty at most.

    Tables are merged in tasks, whose start within the round is not known: their spans begin with it.
    """
    trace = secrets.randbits(128)
    parent = _context(trace)
    begun = traced.ended_ns - int(traced.seconds * 1e9)
    facts = {**traced.facts, "wal2lake.tables": len(traced.tables)}
    yield ReadableSpan(
        traced.name,
        parent,
        resource=resource,
        attributes=facts,
        kind=SpanKind.INTERNAL,
        start_time=begun,
        end_time=traced.ended_ns,
        instrumentation_scope=scope,
    )
    chosen = sorted(traced.tables, key=lambda table: (not table.error, -table.seconds))[:_MOST_TABLES]
    for table in chosen:
        yield ReadableSpan(
            f"merge {table.name}",
            _context(trace),
            parent,
            resource=resource,
            attributes={"wal2lake.table": table.name, **table.facts},
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, table.error) if table.error else Status(),
            start_time=begun,
            end_time=begun + int(min(table.seconds, traced.seconds) * 1e9),
            instrumentation_scope=scope,
        )


def _context(trace: int) -> SpanContext:
    return SpanContext(trace, secrets.randbits(64), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
