"""What a collector of OpenTelemetry got, decoded by OTLP's own messages."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.webhook import Webhook


def bodies(server: Webhook, path: str) -> Iterator[bytes]:
    """The requests to a path."""
    for where, headers, body in list(server.posted):
        if where == path:
            yield gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body


def spans(server: Webhook) -> list[Any]:
    """Every span, in the order in which they came."""
    requests = [ExportTraceServiceRequest.FromString(body) for body in bodies(server, "/v1/traces")]
    return [
        span for each in requests for part in each.resource_spans for scope in part.scope_spans for span in scope.spans
    ]


def metrics(server: Webhook) -> dict[str, Any]:
    """The metrics of the last request, by name."""
    requests = [ExportMetricsServiceRequest.FromString(body) for body in bodies(server, "/v1/metrics")]
    return {
        metric.name: metric
        for part in requests[-1].resource_metrics
        for scope in part.scope_metrics
        for metric in scope.metrics
    }


def resource(server: Webhook) -> dict[str, str]:
    """The resource's attributes of the last request with metrics."""
    last = [ExportMetricsServiceRequest.FromString(body) for body in bodies(server, "/v1/metrics")][-1]
    return {each.key: each.value.string_value for each in last.resource_metrics[0].resource.attributes}


def attributes(span: Any) -> dict[str, Any]:
    """The attributes of a span or a point."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
