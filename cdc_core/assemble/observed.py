"""The observers of a connector's runs, as its file configures them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.observers import Observer
from cdc_core.errors import ConfigError
from cdc_core.outbox import address
from cdc_core.postgres import Finding, bad, good


def observed_run(context: RunContext) -> AbstractContextManager[None]:
    """Observe what happens inside of the context manager. Raises ConfigError if an observer is configured wrongly."""
    return context.observers.run(lambda: _opened(context))


def observer_findings(context: RunContext) -> list[Finding]:
    """Return what ``check`` says of the observers."""
    return [*_lineage_findings(context), *_alert_findings(context)]


def _opened(context: RunContext) -> list[Observer]:
    observers: list[Observer] = []
    if context.config.lineage.openlineage_integration_enabled:
        from cdc_core.assemble.lineage import LineageObserver

        observers.append(LineageObserver(context))
    if context.config.observe.alerts_url:
        from cdc_core.assemble.alerts import AlertObserver

        observers.append(AlertObserver(context))
    return observers


def _alert_findings(context: RunContext) -> list[Finding]:
    url = context.config.observe.alerts_url
    if not url:
        return []
    try:
        text = url.reveal()
    except ConfigError as error:
        return [bad("alerts", error.message, error.remedy)]
    if not text.startswith(("http://", "https://")):
        return [bad("alerts", "wal2lake.alerts.url is no HTTP or HTTPS address.", "Set the URL of a webhook.")]
    return [good("alerts", f"Alerts are posted to {address(text)}.")]


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
