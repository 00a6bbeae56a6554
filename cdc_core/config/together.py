"""Which connector files may run in one process: they agree on what the process has once, and share no slot and no name.

A process has one Spark session with its workers, one metrics endpoint and one log. A file that leaves such a property
out has its default, which may differ from the value of another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from cdc_core.config.catalogue import property_of
from cdc_core.config.connector import ConnectorConfig, line_of
from cdc_core.errors import ConfigError
from cdc_core.postgres import place

PROCESS_PROPERTIES = (
    "wal2lake.metrics.port",
    "wal2lake.metrics.host",
    "wal2lake.metrics.required",
    "wal2lake.log.format",
    "wal2lake.telemetry.otlp.endpoint",
    "wal2lake.telemetry.otlp.interval.seconds",
    "wal2lake.merge.part.max.bytes",
)
"""Properties of the process, beside those of Spark: ``wal2lake.spark.NAME``."""
_SPARK = "wal2lake.spark."
_File = tuple[Path, ConnectorConfig]


def check_together(files: Mapping[Path, ConnectorConfig]) -> None:
    """Raise ConfigError if these connectors cannot run in one process, with every reason. Connects to nothing."""
    problems = [problem for pair in combinations(files.items(), 2) for problem in (*_shared(*pair), *_different(*pair))]
    if problems:
        remedy = (
            "Use another slot.name and topic.prefix for each connector, and the same value of a process's property in "
            "all files, or with --set; or run the connectors in separate processes."
        )
        raise ConfigError("\n".join(["These connectors cannot run in one process:", *problems]), remedy)


def _shared(first: _File, second: _File) -> Iterator[str]:
    """What only one of them can have."""
    (path, config), (other_path, other) = first, second
    files, server = f"{path} and {other_path}", place(config.postgres)
    if config.postgres.slot_name == other.postgres.slot_name and server == place(other.postgres):
        yield f"- {files} have the same slot.name, {config.postgres.slot_name}, on {server}."
    prefix = config.schema.topic_prefix
    if prefix == other.schema.topic_prefix:
        folder = config.lake.lake_path
        lake = f" and the same wal2lake.lake.path, {folder}" if folder and folder == other.lake.lake_path else ""
        yield f"- {files} have the same topic.prefix, {prefix}, which names metrics and lines of the log{lake}."


def _different(first: _File, second: _File) -> Iterator[str]:
    """What both must have."""
    spark = {name for _, config in (first, second) for name, _ in config.engine.spark}
    for name in (*PROCESS_PROPERTIES, *(_SPARK + name for name in sorted(spark))):
        if _value(first[1], name) != _value(second[1], name):
            yield f"- {name} is {_written(first, name)}, and {_written(second, name)}: a process has one value of it."


def _value(config: ConnectorConfig, name: str) -> Any:
    if name.startswith(_SPARK):
        return dict(config.engine.spark).get(name.removeprefix(_SPARK))
    known = property_of(name)
    return getattr(getattr(config, known.package), known.field)


def _written(file: _File, name: str) -> str:
    """The printable value and the place where it is written."""
    path, config = file
    written = next((setting.shown for setting in config.settings if setting.name == name), None)
    if written is None:
        return f"not set in {path}"
    line = line_of(path, name)
    return f"{written} in {path}" + (f", line {line}" if line else "")
