"""Rules of topic.creation.*, as Kafka Connect's."""

from __future__ import annotations

import pytest

from cdc_core.errors import ConfigError
from cdc_core.events.kafka.topics import TopicRules

DEFAULT = (("default.partitions", "3"), ("default.replication.factor", "-1"))


def rules(*more: tuple[str, str]) -> TopicRules:
    found = TopicRules((*DEFAULT, *more))
    found.check()
    return found


def test_the_first_group_that_matches_decides_and_the_default_fills_its_numbers_in() -> None:
    """As Connect's own TopicCreationGroup, which gives a group no other setting of the default's."""
    made = rules(
        ("groups", "compacted, wide"),
        ("default.compression.type", "lz4"),
        ("compacted.include", r"shop\.inventory\.c.*, shop\.outbox"),
        ("compacted.exclude", r"shop\.inventory\.cold"),
        ("compacted.cleanup.policy", "compact"),
        ("wide.include", r"shop\..*"),
        ("wide.partitions", "12"),
    )
    one = made.topic("shop.inventory.customers")
    assert (one.partitions, one.replication_factor) == (3, -1)
    assert one.config == {"cleanup.policy": "compact"}
    wide = made.topic("shop.inventory.cold")
    assert (wide.partitions, wide.replication_factor, wide.config) == (12, -1, {})
    assert made.topic("other").config == {"compression.type": "lz4"}


def test_a_pattern_matches_the_whole_name_with_its_case() -> None:
    made = rules(("groups", "g"), ("g.include", "shop"), ("g.partitions", "9"))
    assert [made.topic(name).partitions for name in ("shop", "shop.a", "SHOP")] == [9, 3, 3]


def test_without_a_default_the_broker_creates_topics() -> None:
    assert not TopicRules(()).creates
    assert rules().creates
    assert not TopicRules((*DEFAULT, ("enable", "false"))).creates


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((("default.partitions", "3"),), r"default\.replication\.factor is missing"),
        ((*DEFAULT, ("groups", "g")), r"g\.include is missing"),
        ((*DEFAULT, ("groups", "g"), ("g.include", "a("), ("g.partitions", "1")), "not valid"),
        ((("default.partitions", "0"), ("default.replication.factor", "1")), "whole number"),
    ],
)
def test_wrong_properties_are_reported(settings: tuple[tuple[str, str], ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        TopicRules(settings).check()
