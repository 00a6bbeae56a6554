"""What ``check`` and ``status`` say of Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from cdc_core.engine import KafkaStatus
from cdc_core.errors import CdcError
from cdc_core.events.format.outlet import EventOutlet
from cdc_core.events.kafka.check import examine, stored_position
from cdc_core.events.kafka.options import KafkaOptions
from cdc_core.events.kafka.settings import servers
from cdc_core.lsn import Lsn
from cdc_core.postgres import Finding, bad, good
from cdc_core.schema import TableId


def kafka_findings(
    options: KafkaOptions, outlet: Callable[[], EventOutlet | None], topics: Sequence[str]
) -> list[Finding]:
    """Return whether Kafka can be written to, and whether ``topics`` exist; ``outlet`` opens transforms and formats."""
    try:
        opened = outlet()
        if opened is not None:
            opened.reach()
        facts = examine(options, topics)
    except CdcError as error:
        return [bad("kafka", error.message, error.remedy)]
    said = f"Kafka at {facts.servers} answers ({facts.brokers} brokers)"
    if not facts.missing:
        return [good("kafka", f"{said}.")]
    who = "the connector creates them by topic.creation.*" if facts.creates else "the broker creates them if it may"
    return [good("kafka", f"{said}; {len(facts.missing)} topics do not exist yet: {who}.")]


def kafka_status(options: KafkaOptions, prefix: str, slot: str, topics: Mapping[TableId, str]) -> KafkaStatus:
    """Return the connector's position in Kafka, and the topics of tables."""
    return _reached(options, prefix, slot).with_topics(topics)


def _reached(options: KafkaOptions, prefix: str, slot: str) -> KafkaStatus:
    try:
        topic, stored = stored_position(options, prefix, slot)
        raw = json.loads(stored) if stored else {}
        lsn = Lsn.parse(raw["lsn"]) if raw else None
    except CdcError as error:
        return KafkaStatus(servers(options), error=str(error))
    except (ValueError, KeyError, TypeError):
        return KafkaStatus(servers(options), topic, error="Its position cannot be read.")
    return KafkaStatus(servers(options), topic, lsn, bool(raw.get("in_snapshot")))
