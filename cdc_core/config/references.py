"""``${env:NAME}``, ``${file:PATH}`` and ``${file:PATH:KEY}``: references in a connector file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cdc_core.config.properties_file import parse_properties
from cdc_core.errors import ConfigError

_REFERENCE = re.compile(r"\$\{([A-Za-z][A-Za-z0-9_-]*):([^{}]*)\}")


def has_reference(text: str) -> bool:
    """Whether the text contains ``${provider:…}``."""
    return _REFERENCE.search(text) is not None


def resolve_references(text: str) -> str:
    """Replace each reference by its value: ``${file:PATH}`` by the file's text without its last line end.

    Raises ConfigError, naming the reference and never a value, if the variable, file or key is missing or the provider
    is unknown.
    """
    return _REFERENCE.sub(lambda match: _resolve(match[1], match[2]), text)


def _resolve(provider: str, rest: str) -> str:
    if provider == "env":
        name = rest.rpartition(":")[2]
        value = os.environ.get(name)
        if value is None:
            raise ConfigError(f"${{env:{rest}}} is not set.", f"Set the environment variable {name}.")
        return value
    if provider == "file":
        return _from_file(rest)
    raise ConfigError(
        f"${{{provider}:{rest}}} uses a configuration provider that wal2lake does not support.",
        "Use ${env:NAME}, ${file:PATH} or ${file:PATH:KEY}.",
    )


def _from_file(rest: str) -> str:
    path, _, key = rest.rpartition(":")
    try:
        if not path or Path(rest).is_file():
            return Path(rest).read_text(encoding="utf-8").rstrip("\r\n")
        entries = parse_properties(Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ConfigError(f"${{file:{rest}}} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"${{file:{rest}}} cannot be read: it is not UTF-8 text.") from None
    for name, value in entries:
        if name == key:
            return value
    raise ConfigError(f"${{file:{rest}}}: the file has no property {key}.")
