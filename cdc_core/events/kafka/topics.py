"""Creation of topics by Kafka Connect's rules.

A group has include and exclude patterns, Java's, that must match the whole name; the first group of
topic.creation.groups that does decides, and the group default has the settings that it lacks. Without
topic.creation.default.* no topic is created here: the broker does if it may.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cdc_core.errors import ConfigError
from cdc_core.selection import Pattern, compile_pattern

_DEFAULT = "default"
_NOT_OF_A_TOPIC = ("include", "exclude", "replication.factor", "partitions")
_BROKERS_CHOICE = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 is the broker's choice."""

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    settings: Mapping[str, str]
    include: tuple[Pattern, ...] = ()
    exclude: tuple[Pattern, ...] = ()

    def matches(self, topic: str) -> bool:
        return any(one.fullmatch(topic) for one in self.include) and not any(
            one.fullmatch(topic) for one in self.exclude
        )


@dataclass(frozen=True)
class TopicRules:
    """The groups of a connector. ``settings`` are the properties below ``topic.creation.``."""

    settings: tuple[tuple[str, str], ...]

    @property
    def creates(self) -> bool:
        """Whether topics are created here, and not by the broker."""
        return bool(self._default.settings) and dict(self.settings).get("enable", "true").strip().lower() == "true"

    def topic(self, name: str) -> NewTopic:
        """Return how a topic is created. As in Connect a group takes the default's numbers, not its other settings."""
        group = next((one for one in self._groups if one.matches(name)), self._default)
        merged = {**self._default.settings, **group.settings}
        numbers = [_number(group.name, merged, key) for key in ("partitions", "replication.factor")]
        config = {key: text for key, text in group.settings.items() if key not in _NOT_OF_A_TOPIC}
        return NewTopic(name, numbers[0], numbers[1], config)

    @property
    def least_limit(self) -> int | None:
        """The smallest max.message.bytes of topics that are created here, None if none is set."""
        given = [group.settings.get("max.message.bytes", "") for group in (self._default, *self._groups)]
        return min((int(one) for one in given if one.isdecimal()), default=None)

    def check(self) -> None:
        """Raise ConfigError if a property is not valid."""
        if not self.settings:
            return
        for group in (self._default, *self._groups):
            merged = {**self._default.settings, **group.settings}
            for key in ("partitions", "replication.factor"):
                if key not in merged:
                    raise ConfigError(
                        f"topic.creation.default.{key} is missing, which topic.creation.* needs (-1: the broker's own)."
                    )
                _number(group.name, merged, key)

    @cached_property
    def _default(self) -> _Group:
        return _Group(_DEFAULT, self._of(_DEFAULT))

    @cached_property
    def _groups(self) -> tuple[_Group, ...]:
        names = [name.strip() for name in dict(self.settings).get("groups", "").split(",") if name.strip()]
        return tuple(self._group(name) for name in names if name != _DEFAULT)

    def _group(self, name: str) -> _Group:
        settings = self._of(name)
        if not settings.get("include", "").strip():
            raise ConfigError(f"topic.creation.{name}.include is missing: a group needs patterns of its topics.")
        include, exclude = (_patterns(name, key, settings.get(key, "")) for key in ("include", "exclude"))
        return _Group(name, settings, include, exclude)

    def _of(self, group: str) -> dict[str, str]:
        head = f"{group}."
        return {key[len(head) :]: text.strip() for key, text in self.settings if key.startswith(head)}


def _patterns(group: str, key: str, text: str) -> tuple[Pattern, ...]:
    found = []
    for part in text.split(","):
        if part.strip():
            try:
                found.append(compile_pattern(part.strip(), ignore_case=False))
            except ValueError as error:
                raise ConfigError(f"topic.creation.{group}.{key} is not valid: {error}.") from None
    return tuple(found)


def _number(group: str, settings: Mapping[str, str], key: str) -> int:
    try:
        value = int(settings.get(key, str(_BROKERS_CHOICE)))
    except ValueError:
        value = 0
    if value < _BROKERS_CHOICE or value == 0:
        raise ConfigError(f"topic.creation.{group}.{key} must be a whole number of at least 1, or -1.")
    return value
