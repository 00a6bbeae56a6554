"""The job that sends signals to the running connector.

It only sends the signal through an enabled channel; the streaming run processes it. It does not use the slot, which
keeps its single consumer.
"""

# Dagster inspects the annotation of `context` itself, so annotations are not postponed in this file.

import difflib
import json
from collections.abc import Sequence
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from cdc_core.errors import ConfigError
from cdc_core.schema import TableId
from cdc_core.selection import table_matcher
from cdc_core.snapshot import SnapshotKind
from wal2lake.pipelines.connector.keys import snapshot_key
from wal2lake.pipelines.connector.site import Engine, Site
from wal2lake.pipelines.step.failure import reported

# The column data of a signal table is varchar(2048) in Debezium's documentation.
_MAX_CHARACTERS = 2000
EVERY_TABLE = ".*"


class Condition(dg.Config):
    """Condition on the rows of a table that are read."""

    data_collection: str = Field(
        description="The table (schema.table), or a regular expression that matches such names."
    )
    filter: str = Field(description="A condition in SQL, as in a WHERE clause: id > 1000 and status = 'open'.")


class SignalConfig(dg.Config):
    """A Debezium signal. By default a log signal, which logs the position of the stream."""

    type: Literal["log", "execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot"] = Field(
        default="log", description="Type of the signal."
    )
    snapshot_type: Literal["incremental", "blocking"] = Field(
        default="incremental",
        description="For execute-snapshot: incremental (in chunks, while streaming) or blocking (streaming is paused).",
    )
    data_collections: list[str] = Field(
        default=[],
        description="For execute-snapshot and stop-snapshot: captured tables (schema.table), or regular "
        "expressions that match such names. stop-snapshot without tables stops all.",
    )
    additional_conditions: list[Condition] = Field(
        default=[], description="For execute-snapshot: conditions per table; only matching rows are read."
    )
    surrogate_key: str = Field(
        default="", description="For execute-snapshot: a unique column by which chunks are split, instead of the key."
    )
    message: str = Field(
        default="Signal from Dagster at {}", description="For log: the message; {} is replaced by the position."
    )
    custom_type: str = Field(
        default="",
        description="A custom type of wal2lake.signal.actions, instead of the field type; sent with custom_data.",
    )
    custom_data: str = Field(default="", description="For custom_type: the data, a JSON object.")

    def sent(self) -> tuple[str, dict[str, Any]]:
        """The signal's type and data. Raises ConfigError if fields are set that do not belong to the type."""
        if self.custom_type:
            return self.custom_type, _object(self.custom_data)
        fields = {
            "data_collections": bool(self.data_collections),
            "additional_conditions": bool(self.additional_conditions),
            "surrogate_key": bool(self.surrogate_key),
            "custom_data": bool(self.custom_data),
        }
        allowed = {
            "execute-snapshot": ("data_collections", "additional_conditions", "surrogate_key"),
            "stop-snapshot": ("data_collections",),
        }.get(self.type, ())
        wrong = [name for name, is_given in fields.items() if is_given and name not in allowed]
        if wrong:
            raise ConfigError(
                f"A signal of type {self.type} does not have the fields {', '.join(wrong)}.", "Remove these fields."
            )
        if self.type == "log":
            return self.type, {"message": self.message}
        if self.type == "stop-snapshot":
            tables = {"data-collections": self.data_collections} if self.data_collections else {}
            return self.type, {"type": "incremental", **tables}
        if self.type != "execute-snapshot":
            return self.type, {"type": "incremental"}
        if not self.data_collections:
            raise ConfigError(
                "The signal of type execute-snapshot has no tables.",
                "Set data_collections, such as public.orders, or .*",
            )
        kind = SnapshotKind(self.snapshot_type)
        return self.type, _execute(kind, self.data_collections, self.additional_conditions, self.surrogate_key)


def signal_job_name(site: Site) -> str:
    """The name of the job that sends any signal."""
    return f"{site.safe_name}_signal_job"


def snapshot_signal_config(site: Site, tables: Sequence[str]) -> dict[str, Any]:
    """The run configuration of the job for an incremental snapshot of these tables; of all if there are none."""
    config = {"type": "execute-snapshot", "data_collections": list(tables) or [EVERY_TABLE]}
    return {"ops": {f"{site.safe_name}_signal": {"config": config}}}


def signal_job(site: Site) -> dg.JobDefinition:
    """The job that sends signals to a connector."""

    @dg.op(name=f"{site.safe_name}_signal", description="Sends one signal to the running connector.")
    def signal(context: dg.OpExecutionContext, config: SignalConfig) -> None:
        with reported():
            kind, data = config.sent()
            if kind != "execute-snapshot":
                _send(context, site, kind, data)
                return
            tables = data["data-collections"]
            matched_tables(site.open(), tables)
            for part in _in_parts(tables):
                _send(context, site, kind, {**data, "data-collections": part})

    @dg.job(
        name=signal_job_name(site),
        description=f"Sends a signal to the streaming run of {site.name}; by default, a signal of type log.",
        executor_def=dg.in_process_executor,
    )
    def job() -> None:
        signal()

    return job


def _send(context: dg.OpExecutionContext, site: Site, kind: str, data: dict[str, Any]) -> None:
    channel = site.open().signal(kind, json.dumps(data) if data else "")
    context.log.info(f"{kind} was sent through channel {channel}: {json.dumps(data)}")
    context.log_event(
        dg.AssetObservation(
            asset_key=snapshot_key(site),
            description=f"Signal {kind} sent through channel {channel}",
            metadata={"signal": kind, "channel": channel, "data": dg.MetadataValue.json(data)},
        )
    )


def _execute(
    kind: SnapshotKind, tables: Sequence[str], conditions: Sequence[Condition], surrogate_key: str
) -> dict[str, Any]:
    data: dict[str, Any] = {"type": kind.value, "data-collections": list(tables)}
    if conditions:
        listed = [
            {"data-collection": condition.data_collection, "filter": condition.filter} for condition in conditions
        ]
        data["additional-conditions"] = listed
    if surrogate_key:
        data["surrogate-key"] = surrogate_key
    return data


def matched_tables(engine: Engine, entries: Sequence[str]) -> list[TableId]:
    """Return the captured tables matched by some entry, a name or a regular expression.

    Raises ConfigError for an entry that matches none: the connector would only log a message.
    """
    tables = [table.id for table in engine.tables()]
    captured, matched_names = [str(table) for table in tables], set()
    for entry in entries:
        try:
            names = table_matcher(entry.strip())
        except ValueError as error:
            raise ConfigError(f"{entry!r} is not a regular expression ({error}).", "Write schema.table.") from None
        matched = {str(table) for table in tables if names(table)}
        if not matched:
            near = difflib.get_close_matches(entry, captured, n=1)
            raise ConfigError(
                f"No captured table matches {entry}.",
                f"Did you mean {near[0]}?"
                if near
                else "Use schema.table, as in the partition keys of the snapshot asset.",
            )
        matched_names |= matched
    return [table for table in tables if str(table) in matched_names]


def _in_parts(tables: Sequence[str]) -> list[list[str]]:
    """Divide the tables into groups that fit into a row of the signal table."""
    parts: list[list[str]] = [[]]
    for table in tables:
        if parts[-1] and len(json.dumps([*parts[-1], table])) > _MAX_CHARACTERS // 2:
            parts.append([])
        parts[-1].append(table)
    return parts


def _object(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text or "{}")
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise ConfigError("custom_data is not a JSON object.", 'Write it as {"name": "value"}.')
    return data
