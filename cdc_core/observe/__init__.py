"""The external view of a running connector: metrics for Prometheus, data docs, alerts, and options for Dagster.

``ObserveOptions`` are the settings, with ``CheckLevel``, ``FreshnessWindow``, ``LogFormat`` and ``TABLE_CHECKS``.
``ConnectorMetrics`` counts what a run reports (``Queue``, ``ConnectionCounts``, ``LagCounts`` by ``LAG_BOUNDS``), and
``metrics_of`` serves it over HTTP, with the health of each connector, until ``forget_metrics``. ``pages_folder``,
``data_docs_url`` and ``DATA_DOCS_FOLDER`` are the places of data docs. ``Alerts`` posts what has lasted, an
``AlertEvent`` each.

Metrics may be updated and read by any thread, and start from zero in each process. Nothing here waits for the run, and
no failure of an HTTP request affects it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.observe.alerts import AlertEvent as AlertEvent
    from cdc_core.observe.alerts import Alerts as Alerts
    from cdc_core.observe.counts import ConnectionCounts as ConnectionCounts
    from cdc_core.observe.counts import Queue as Queue
    from cdc_core.observe.endpoint import forget_metrics as forget_metrics
    from cdc_core.observe.endpoint import metrics_of as metrics_of
    from cdc_core.observe.lag import LAG_BOUNDS as LAG_BOUNDS
    from cdc_core.observe.lag import LagCounts as LagCounts
    from cdc_core.observe.metrics import ConnectorMetrics as ConnectorMetrics
    from cdc_core.observe.options import TABLE_CHECKS as TABLE_CHECKS
    from cdc_core.observe.options import CheckLevel as CheckLevel
    from cdc_core.observe.options import FreshnessWindow as FreshnessWindow
    from cdc_core.observe.options import LogFormat as LogFormat
    from cdc_core.observe.options import ObserveOptions as ObserveOptions
    from cdc_core.observe.static_pages import DATA_DOCS_FOLDER as DATA_DOCS_FOLDER
    from cdc_core.observe.static_pages import data_docs_url as data_docs_url
    from cdc_core.observe.static_pages import pages_folder as pages_folder

lazily(
    __name__,
    {
        "AlertEvent": "alerts",
        "Alerts": "alerts",
        "CheckLevel": "options",
        "ConnectionCounts": "counts",
        "ConnectorMetrics": "metrics",
        "DATA_DOCS_FOLDER": "static_pages",
        "FreshnessWindow": "options",
        "LAG_BOUNDS": "lag",
        "LagCounts": "lag",
        "LogFormat": "options",
        "ObserveOptions": "options",
        "Queue": "counts",
        "TABLE_CHECKS": "options",
        "data_docs_url": "static_pages",
        "forget_metrics": "endpoint",
        "metrics_of": "endpoint",
        "pages_folder": "static_pages",
    },
)
