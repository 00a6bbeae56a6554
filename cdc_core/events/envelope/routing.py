"""Topics renamed by ``topic.regex``, and the field that distinguishes their tables in keys."""

from __future__ import annotations

import logging

from cdc_core.schema import Names, SchemaOptions, TableId
from cdc_core.selection import Pattern, compile_pattern, replacing

_log = logging.getLogger(__name__)


class TopicRouting:
    """The regex naming strategies. Raises ValueError for an expression or replacement that is not valid."""

    def __init__(self, options: SchemaOptions) -> None:
        self._regex = compile_pattern(options.topic_regex, ignore_case=False)
        self._replace = replacing(self._regex, options.topic_replacement)
        self.field = options.topic_key_field_name if options.topic_key_enforce_uniqueness else None
        self._key_regex: Pattern | None = None
        if options.topic_key_field_regex:
            self._key_regex = compile_pattern(options.topic_key_field_regex, ignore_case=False)
            self._key_replace = replacing(self._key_regex, options.topic_key_field_replacement)

    def topic(self, topic: str) -> str:
        """Return a topic's new name, or itself if the expression does not match all of it."""
        if not self._regex.fullmatch(topic):
            return topic
        found = self._replace(topic)
        if not found:
            _log.warning("topic.regex makes an empty topic of %s; it is not renamed.", topic)
        return found or topic

    def identity(self, names: Names, table: TableId) -> str:
        """Return the value of the key's field for a table."""
        origin = names.origin(table)
        return self._key_replace(origin) if self._key_regex and self._key_regex.fullmatch(origin) else origin


def routing_of(options: SchemaOptions) -> TopicRouting | None:
    """Return the routing of a connector, None without a regex strategy."""
    return TopicRouting(options) if options.topic_naming_strategy.is_regex else None
