"""Families of metrics as Prometheus gets them ─▶ metrics of OpenTelemetry, with the same names and labels.

A counter is a monotonic sum, a gauge a gauge, a histogram one with the same bounds; all count from the start of the
process, so a point that is lost changes no later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
)

_INFINITE = float("inf")


def metrics_of_families(families: Iterable[Any], started_ns: int, now_ns: int) -> Iterator[Metric]:
    """Yield the metrics of families of prometheus_client; times are in nanoseconds since 1970."""
    for family in families:
        data: Sum | Gauge | Histogram
        match family.type:
            case "counter":
                points = [_number(sample, started_ns, now_ns) for sample in family.samples]
                data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            case "histogram":
                data = Histogram(list(_histograms(family, started_ns, now_ns)), AggregationTemporality.CUMULATIVE)
            case _:
                data = Gauge([_number(sample, started_ns, now_ns) for sample in family.samples])
        yield Metric(family.name, family.documentation, None, data)


def _number(sample: Any, started_ns: int, now_ns: int) -> NumberDataPoint:
    return NumberDataPoint(dict(sample.labels), started_ns, now_ns, float(sample.value))


def _histograms(family: Any, started_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each set of labels; Prometheus' buckets are cumulative, OpenTelemetry's are not."""
    by_labels: dict[tuple[tuple[str, str], ...], dict[Any, float]] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        part = sample.name.removeprefix(family.name)
        key = float(sample.labels["le"]) if part == "_bucket" else part
        by_labels.setdefault(labels, {})[key] = sample.value
    for labels, values in by_labels.items():
        bounds = sorted(key for key in values if isinstance(key, float))
        sums = [int(values[bound]) for bound in bounds]
        counts = [after - before for before, after in zip([0, *sums], sums, strict=False)]
        yield HistogramDataPoint(
            dict(labels),
            started_ns,
            now_ns,
            sums[-1],
            values["_sum"],
            counts,
            [bound for bound in bounds if bound < _INFINITE],
            0.0,
            0.0,
        )
