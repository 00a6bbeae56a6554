"""Metrics of an operation: its progress, batches and rounds are counted for Prometheus."""

from __future__ import annotations

from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.config import ConnectorConfig
from cdc_core.engine import Meter
from cdc_core.observe import DATA_DOCS_FOLDER, metrics_of, pages_folder


def meter(context: RunContext) -> Meter:
    """The connector's meter, served if ``wal2lake.metrics.port`` is set. Raises ConfigError if it cannot be.

    All operations of a connector count in the same metrics.
    """
    config, observe = context.config, context.config.observe
    is_read = bool(observe.metrics_port or config.telemetry.telemetry_otlp_endpoint)
    if context.counted:
        return Meter(context.counted[0], is_read)
    sites, tags = data_docs_sites(config), observe.custom_metric_tags
    address, is_required = (observe.metrics_host, observe.metrics_port), observe.metrics_required
    context.counted.append(metrics_of(context.name, *address, sites, tags, is_required=is_required))
    return Meter(context.counted[0], is_read)


def data_docs_sites(config: ConnectorConfig) -> list[Path]:
    """The folders in which data docs may exist: those of runs on the command line, and of Dagster's."""
    configured = config.quality.quality_docs_path
    folders = [Path(configured)] if configured else []
    return [pages_folder(folder.resolve()) for folder in (*folders, config.state_path / DATA_DOCS_FOLDER)]
