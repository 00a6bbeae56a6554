"""Sends metrics and traces to a collector at an interval, in a thread of its own.

Headers, certificates and compression are those of OpenTelemetry's own variables (``OTEL_EXPORTER_OTLP_HEADERS`` and so
on), attributes of the resource those of ``OTEL_RESOURCE_ATTRIBUTES``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, ResourceMetrics, ScopeMetrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from cdc_core.clock import now_ns
from cdc_core.connector_threads import ConnectorThread
from cdc_core.outbox import address
from cdc_core.telemetry.points import metrics_of_families
from cdc_core.telemetry.traces import TracedRound, spans
from cdc_core.version import __version__

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5.0
# Rounds that wait for the next sending: more than a round a second are left out.
_MOST_ROUNDS = 600


class Telemetry:
    """Telemetry of one run of the connector ``name``. ``families`` returns the metrics as Prometheus would get them."""

    def __init__(
        self, endpoint: str, name: str, families: Callable[[], Iterable[Any]], interval_seconds: float
    ) -> None:
        base = endpoint.rstrip("/")
        self._place, self._families, self._interval = address(base), families, interval_seconds
        self._metrics = OTLPMetricExporter(f"{base}/v1/metrics", timeout=_TIMEOUT_SECONDS)
        self._traces = OTLPSpanExporter(f"{base}/v1/traces", timeout=_TIMEOUT_SECONDS)
        self._resource = Resource.create(
            {"service.name": "wal2lake", "service.version": __version__, "wal2lake.connector": name}
        )
        self._scope = InstrumentationScope("wal2lake", __version__)
        self._started_ns = now_ns()
        self._rounds: deque[TracedRound] = deque(maxlen=_MOST_ROUNDS)
        self._closing = threading.Event()
        self._has_failed = False
        self._thread = ConnectorThread(target=self._run, name="telemetry", daemon=True)
        # The library logs each failure with its stack, and the address with what may be a token in it.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)

    def begin(self) -> None:
        """Send from now on."""
        self._thread.start()

    def add(self, traced: TracedRound) -> None:
        """Send a trace with the next points. Any thread may call it."""
        self._rounds.append(traced)

    def close(self, seconds: float) -> None:
        """Send what is left, and stop; waits at most ``seconds``."""
        self._closing.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            is_last = self._closing.wait(self._interval)
            try:
                self._send()
            except Exception as error:  # a defect of the library must not end the thread
                self._note(type(error).__name__)
            if is_last:
                self._metrics.shutdown()
                self._traces.shutdown()
                return

    def _send(self) -> None:
        metrics = list(metrics_of_families(self._families(), self._started_ns, now_ns()))
        scoped = ScopeMetrics(self._scope, metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scoped], "")])
        is_sent = self._metrics.export(data) is MetricExportResult.SUCCESS
        rounds = [self._rounds.popleft() for _ in range(len(self._rounds))]
        finished = [span for each in rounds for span in spans(each, self._resource, self._scope)]
        if finished and is_sent:
            is_sent = self._traces.export(finished) is SpanExportResult.SUCCESS
        self._note("" if is_sent else "it does not answer, or refuses")

    def _note(self, problem: str) -> None:
        if problem and not self._has_failed:
            _log.warning(
                "Telemetry is not sent to %s: %s. The run continues, and tries again with each interval.",
                self._place,
                problem,
            )
        elif not problem and self._has_failed:
            _log.info("Telemetry is sent to %s again.", self._place)
        self._has_failed = bool(problem)
