"""Names of fields; with ``field.syntax.version=V2`` paths to nested ones, separated by dots, backticks quote."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cdc_core.errors import ConfigError
from cdc_core.events.envelope.batch import Data
from cdc_core.events.transform.settings import Settings

_STEP = re.compile(r"`((?:[^`\\]|\\.|`(?!\.|$))*)`(?:\.|$)|([^.]*)(?:\.|$)")


@dataclass(frozen=True, slots=True)
class FieldPath:
    """Steps from a struct to a field. ``text`` is as written."""

    text: str
    steps: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings, name: str, default: str | None = None) -> FieldPath:
        """Read a path from a property. Raises ConfigError."""
        text = settings.text(name, default)
        version = settings.choice("field.syntax.version", ("V1", "V2"), "V1")
        if version == "V1" or not text:
            return cls(text, (text,))
        if text.count("`") % 2:
            raise ConfigError(f"{settings.name(name)} is {text!r}: a backtick is not closed.")
        steps = []
        at = 0
        while at < len(text):
            match = _STEP.match(text, at)
            if match is None or match.end() == at:
                break
            steps.append(match[2] if match[1] is None else match[1].replace("\\`", "`"))
            at = match.end()
        return cls(text, tuple([*steps, ""] if text.endswith(".") else steps))

    def find(self, data: Data) -> Data | None:
        """Return the field of every struct, None if the schema has no such field. Null where a struct is null."""
        found: Data | None = data
        for step in self.steps:
            found = found.field(step) if found is not None and found.is_struct else None
        return found
