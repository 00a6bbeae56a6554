"""Creates topics before the first record is written to them, if the connector does (``topics``)."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cdc_core.events.kafka.client import REACH_SECONDS, Reported, error_of
from cdc_core.events.kafka.topics import NewTopic, TopicRules

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata

_log = logging.getLogger(__name__)

_ASK_SECONDS = 2.0
_LIMIT = "max.message.bytes"


class TopicMaker:
    """For one thread. ``existing`` is requested from the broker once, at the first topic."""

    def __init__(self, admin: AdminClient, rules: TopicRules, servers: str, reported: Reported) -> None:
        self._admin = admin
        self._rules = rules
        self._servers = servers
        self._reported = reported
        self._known: set[str] = set()

    def make(self, topics: Iterable[str]) -> None:
        """Create those that do not exist, by the rules. Raises CdcError."""
        new = [topic for topic in topics if topic not in self._known]
        if not new:
            return
        if self._rules.creates:
            existing = self.existing()
            for topic in new:
                if topic not in existing:
                    self.create(self._rules.topic(topic))
        self._known.update(new)

    def existing(self) -> set[str]:
        """Return the names of all topics that the client may see. Raises CdcError if no broker answers."""
        return set(self.known(REACH_SECONDS).topics)

    def known(self, seconds: float) -> ClusterMetadata:
        """Return the cluster's metadata. Raises CdcError if no broker answers, or none accepts the client."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + seconds
        while True:
            try:
                return self._admin.list_topics(timeout=_ASK_SECONDS)
            except KafkaException:
                # Runs the callback that receives the cause.
                self._admin.poll(0)
                if self._reported.refused or time.monotonic() > deadline:
                    raise self._reported.unreachable(seconds) from None

    def limits(self, topics: Iterable[str]) -> dict[str, int]:
        """Return ``max.message.bytes`` of topics that exist and whose settings the client may see."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import ConfigResource

        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
        by_topic = {}
        if asked:
            for resource, answer in self._admin.describe_configs(asked, request_timeout=REACH_SECONDS).items():
                try:
                    by_topic[resource.name] = int(answer.result()[_LIMIT].value)
                except (KafkaException, KeyError, ValueError) as error:
                    _log.debug("The limit of topic %s is not known: %s", resource.name, error)
        return by_topic

    def create(self, topic: NewTopic) -> None:
        """Create a topic; one that exists by now is left as it is. Raises CdcError."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic as Asked

        asked = Asked(topic.name, topic.partitions, topic.replication_factor, config=dict(topic.config))
        made = self._admin.create_topics([asked], request_timeout=REACH_SECONDS)
        try:
            made[topic.name].result()
            _log.info("Topic %s was created.", topic.name)
        except KafkaException as error:
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise error_of(error.args[0], self._servers, f"creating topic {topic.name}") from None
