"""The observers of a connector's runs, as its file configures them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.observers import Observer
from cdc_core.connector_threads import of_connector
from cdc_core.errors import ConfigError
from cdc_core.extras import require
from cdc_core.outbox import DeliveryError, address
from cdc_core.postgres import Finding, bad, doubtful, good


@contextmanager
def observed_run(context: RunContext) -> Iterator[None]:
    """Observe what happens inside of the context manager, for which threads work for the connector.

    Raises ConfigError if an observer is configured wrongly.
    """
    with of_connector(context.name), context.observers.run(lambda: _opened(context)):
        yield


def observer_findings(context: RunContext) -> list[Finding]:
    """Return what ``check`` says of the observers."""
    return [
        finding
        for findings in (_lineage_findings, _alert_findings, _telemetry_findings, _catalog_findings)
        for finding in findings(context)
    ]


def _opened(context: RunContext) -> list[Observer]:
    observers: list[Observer] = []
    if context.config.lineage.openlineage_integration_enabled:
        from cdc_core.assemble.lineage import LineageObserver

        observers.append(LineageObserver(context))
    if context.config.observe.alerts_url:
        from cdc_core.assemble.alerts import AlertObserver

        observers.append(AlertObserver(context))
    if context.config.telemetry.telemetry_otlp_endpoint:
        require("otlp", "wal2lake.telemetry.otlp.endpoint")
        from cdc_core.assemble.telemetry import TelemetryObserver

        observers.append(TelemetryObserver(context))
    if _registers(context):
        from cdc_core.assemble.catalogs import CatalogObserver

        observers.append(CatalogObserver(context))
    return observers


def _registers(context: RunContext) -> bool:
    return bool(context.config.catalogs.catalogs) and "lake" in context.config.engine.sinks


def _catalog_findings(context: RunContext) -> list[Finding]:
    if not _registers(context):
        return []
    from cdc_core.catalogs import opened_catalogs

    findings = []
    try:
        for catalog in opened_catalogs(context.config.catalogs, context.lake.paths.base):
            try:
                catalog.check()
                findings.append(good("catalog", f"{catalog.place} answers; lake tables are registered there."))
            except DeliveryError as error:
                remedy = "A run continues without it, and registers its tables once it answers."
                findings.append(doubtful("catalog", f"{catalog.place} cannot be used: {error}.", remedy))
    except ConfigError as error:
        findings.append(bad("catalog", error.message, error.remedy))
    return findings


def _telemetry_findings(context: RunContext) -> list[Finding]:
    endpoint = context.config.telemetry.telemetry_otlp_endpoint
    if not endpoint:
        return []
    try:
        require("otlp", "wal2lake.telemetry.otlp.endpoint")
    except ConfigError as error:
        return [bad("telemetry", error.message, error.remedy)]
    return _web_finding("telemetry", "wal2lake.telemetry.otlp.endpoint", endpoint, "Metrics and traces are sent to")


def _alert_findings(context: RunContext) -> list[Finding]:
    url = context.config.observe.alerts_url
    if not url:
        return []
    try:
        return _web_finding("alerts", "wal2lake.alerts.url", url.reveal(), "Alerts are posted to")
    except ConfigError as error:
        return [bad("alerts", error.message, error.remedy)]


def _web_finding(check: str, name: str, url: str, what: str) -> list[Finding]:
    if not url.startswith(("http://", "https://")):
        return [bad(check, f"{name} is no HTTP or HTTPS address.", "Set a URL that begins with https:// or http://.")]
    return [good(check, f"{what} {address(url)}.")]


def _lineage_findings(context: RunContext) -> list[Finding]:
    options = context.config.lineage
    if not options.openlineage_integration_enabled:
        return []
    from cdc_core.lineage import opened_transport

    try:
        place = opened_transport(options.openlineage_integration_config_file_path).place
    except ConfigError as error:
        return [bad("lineage", error.message, error.remedy)]
    return [good("lineage", f"OpenLineage events are sent to {place}.")]
