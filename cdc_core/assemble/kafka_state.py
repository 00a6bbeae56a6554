"""What ``check`` and ``status`` say of Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from cdc_core.assemble.context import RunContext
from cdc_core.engine import KafkaStatus, KafkaTopic
from cdc_core.errors import CdcError
from cdc_core.events import examine, servers, stored_position
from cdc_core.lsn import Lsn
from cdc_core.postgres import Finding, bad, good
from cdc_core.schema import Names, TableSchema


def kafka_findings(context: RunContext, tables: list[TableSchema]) -> list[Finding]:
    """Whether Kafka can be written to. ``tables`` are the captured ones; transforms may change their topics."""
    config = context.config
    names = Names(config.schema)
    try:
        outlet = config.outlet(is_raw=True)
        if outlet is not None:
            outlet.reach()
        found = examine(config.kafka, [] if config.transforms.transforms else [names.topic(one.id) for one in tables])
    except CdcError as error:
        return [bad("kafka", error.message, error.remedy)]
    said = f"Kafka at {found.servers} answers ({found.brokers} brokers)"
    if not found.missing:
        return [good("kafka", f"{said}.")]
    who = "the connector creates them by topic.creation.*" if found.creates else "the broker creates them if it may"
    return [good("kafka", f"{said}; {len(found.missing)} topics do not exist yet: {who}.")]


def kafka_status(context: RunContext, tables: Sequence[TableSchema]) -> KafkaStatus:
    """The connector's position in Kafka, and the topics of these tables."""
    names = Names(context.config.schema)
    topics = tuple(KafkaTopic(table.id, names.topic(table.id)) for table in tables)
    return replace(_reached(context), topics=topics)


def _reached(context: RunContext) -> KafkaStatus:
    options = context.config.kafka
    try:
        topic, stored = stored_position(options, context.name, context.slot)
        raw = json.loads(stored) if stored else {}
        lsn = Lsn.parse(raw["lsn"]) if raw else None
    except CdcError as error:
        return KafkaStatus(servers(options), error=str(error))
    except (ValueError, KeyError, TypeError):
        return KafkaStatus(servers(options), topic, error="Its position cannot be read.")
    return KafkaStatus(servers(options), topic, lsn, bool(raw.get("in_snapshot")))
