"""Metrics and traces of runs for OpenTelemetry, by OTLP over HTTP (only importer of opentelemetry).

``TelemetryOptions`` are the settings. ``Telemetry`` sends the metrics that Prometheus would get, and each round as a
trace: a ``TracedRound`` with its tables (``TracedTable``) as spans.

Everything is sent by a thread; a collector that is away costs points and spans, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.telemetry.export import Telemetry as Telemetry
    from cdc_core.telemetry.options import TelemetryOptions as TelemetryOptions
    from cdc_core.telemetry.traces import TracedRound as TracedRound
    from cdc_core.telemetry.traces import TracedTable as TracedTable

lazily(
    __name__,
    {
        "Telemetry": "export",
        "TelemetryOptions": "options",
        "TracedRound": "traces",
        "TracedTable": "traces",
    },
)
