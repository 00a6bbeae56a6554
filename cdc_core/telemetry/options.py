"""Options of OpenTelemetry."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import at_least, option


@dataclass(frozen=True, slots=True)
class TelemetryOptions:
    """Options of telemetry."""

    telemetry_otlp_endpoint: str = option(
        "wal2lake.telemetry.otlp.endpoint",
        "",
        "Address of an OpenTelemetry collector to which a run sends its metrics and traces by OTLP over HTTP, such as "
        "http://127.0.0.1:4318; empty for none. It needs the extra otlp (docs/metrics.md).",
    )
    telemetry_otlp_interval_seconds: int = option(
        "wal2lake.telemetry.otlp.interval.seconds",
        60,
        "How often metrics and traces are sent.",
        parse=at_least(1),
    )
