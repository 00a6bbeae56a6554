"""Reads the file of ``openlineage.integration.config.file.path``: the settings of OpenLineage's client for Java.

transport:
  type: http                     console | file | composite
  url: https://lineage.example.org
  endpoint: /api/v1/lineage
  timeoutInMillis: 5000
  auth: {type: api_key, apiKey: …}
  urlParams, headers: {name: value}
  compression: gzip
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import yaml

from cdc_core.errors import ConfigError
from cdc_core.lineage.transports import (
    CompositeTransport,
    ConsoleTransport,
    FileTransport,
    HttpTransport,
    Transport,
)
from cdc_core.option import Secret

_ENDPOINT = "/api/v1/lineage"
_PROPERTY = "openlineage.integration.config.file.path"
_MAX_TIMEOUT_MS = 60_000


def opened_transport(path: str) -> Transport:
    """Return where events go. Raises ConfigError if the file cannot be read, or has no transport that is supported."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"The file {path} ({_PROPERTY}) cannot be read: {why}.") from None
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"{path} is not YAML{place}.", "Correct the file.") from None
    try:
        return _transport(_map(_map(document, "the file").get("transport"), "transport"), "transport")
    except ValueError as error:
        raise ConfigError(f"{path}: {error}.", f"Correct the file of {_PROPERTY} (docs/lineage.md).") from None


def _transport(settings: Mapping[str, Any], place: str) -> Transport:
    kind = str(settings.get("type", "")).lower()
    make = _KINDS.get(kind)
    if make is None:
        raise ValueError(f"{place}.type is {kind or 'missing'}, expected one of {', '.join(_KINDS)}")
    return make(settings, place)


def _http(settings: Mapping[str, Any], place: str) -> Transport:
    if "sslContext" in settings:
        raise ValueError(f"{place}.sslContext holds Java key stores, which are not supported")
    auth = _map(settings.get("auth") or {}, f"{place}.auth")
    if auth and auth.get("type") != "api_key":
        raise ValueError(f"{place}.auth.type is {auth.get('type')}, expected api_key")
    compression = settings.get("compression")
    if compression not in (None, "gzip"):
        raise ValueError(f"{place}.compression is {compression}, expected gzip")
    timeout = settings.get("timeoutInMillis", 5000)
    if not isinstance(timeout, int) or not 1 <= timeout <= _MAX_TIMEOUT_MS:
        raise ValueError(f"{place}.timeoutInMillis is expected to be a whole number from 1 to {_MAX_TIMEOUT_MS}")
    key = auth.get("apiKey") or auth.get("api_key") or ""
    return HttpTransport(
        _url(settings, place),
        Secret(str(key)),
        {str(name): str(value) for name, value in _map(settings.get("headers") or {}, f"{place}.headers").items()},
        timeout / 1000,
        compression is not None,
    )


def _url(settings: Mapping[str, Any], place: str) -> str:
    parts, endpoint = urlsplit(str(settings.get("url") or "")), settings.get("endpoint")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{place}.url is expected to be an HTTP or HTTPS address")
    if parts.path and endpoint:
        raise ValueError(f"{place}.url has a path, and {place}.endpoint is another one: keep one of them")
    parameters = _map(settings.get("urlParams") or {}, f"{place}.urlParams").items()
    query = urlencode([(str(name).removeprefix("url.param."), str(value)) for name, value in parameters])
    path = parts.path or f"/{str(endpoint or _ENDPOINT).lstrip('/')}"
    return urlunsplit(parts._replace(path=path, query="&".join(part for part in (parts.query, query) if part)))


def _file(settings: Mapping[str, Any], place: str) -> Transport:
    if not settings.get("location"):
        raise ValueError(f"{place}.location is missing")
    return FileTransport(Path(str(settings["location"])))


def _console(settings: Mapping[str, Any], place: str) -> Transport:
    return ConsoleTransport()


def _composite(settings: Mapping[str, Any], place: str) -> Transport:
    transports = settings.get("transports")
    if isinstance(transports, Mapping):
        named = [(f"{place}.transports.{name}", each) for name, each in sorted(transports.items())]
    elif isinstance(transports, list):
        named = [(f"{place}.transports[{number}]", each) for number, each in enumerate(transports)]
    else:
        raise ValueError(f"{place}.transports is expected to be a list or a map of transports")
    made = tuple(_transport(_map(each, where), where) for where, each in named)
    return CompositeTransport(made, settings.get("continueOnFailure") is not False)


_KINDS: dict[str, Callable[[Mapping[str, Any], str], Transport]] = {
    "http": _http,
    "file": _file,
    "console": _console,
    "composite": _composite,
}


def _map(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{place} is expected to be a map")
    return value
