"""A schema registry's clients: registers and looks up schemas over HTTP, as Confluent's serializers do."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from cdc_core.errors import ConfigError, RecordError, TransientError
from cdc_core.events.transform.settings import Settings

_log = logging.getLogger(__name__)

_TYPE = "application/vnd.schemaregistry.v1+json"
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a subject. ``schema`` is the JSON value."""

    subject: str
    id: int
    version: int
    schema: Any


class Registry:
    """``schema.registry.url`` lists addresses of one registry; each is tried in turn."""

    def __init__(self, settings: Settings) -> None:
        found = settings.items("schema.registry.url", required=True)
        addresses = [_address(url, settings) for url in found]
        self._urls = [url for url, _ in addresses]
        self._authorization = _authorization(settings, next((user for _, user in addresses if user), ""))
        self._normalize = settings.flag("normalize.schemas", False)
        self._headers = settings.below("request.header").all()
        self._open = _opener(settings).open

    def reach(self) -> None:
        """Ask something that changes nothing. Raises ConfigError if it refuses the connector, or TransientError."""
        with suppress(RecordError):  # an answer, though it has no such page
            self._ask("GET", "/config", None)

    def register(self, subject: str, schema: Any) -> int:
        """Register a schema, or find it, and return its id. Raises RecordError, TransientError."""
        path = f"/subjects/{quote(subject, safe='')}/versions" + ("?normalize=true" if self._normalize else "")
        return int(self._ask("POST", path, {"schema": json.dumps(schema)})["id"])

    def find(self, subject: str, schema: Any) -> Registered:
        """Return a schema that is registered under the subject. Raises RecordError, TransientError."""
        path = f"/subjects/{quote(subject, safe='')}" + ("?normalize=true" if self._normalize else "")
        return _registered(self._ask("POST", path, {"schema": json.dumps(schema)}), subject, schema)

    def latest(self, subject: str) -> Registered:
        """Return the latest schema of a subject. Raises RecordError, TransientError."""
        answer = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", None)
        return _registered(answer, subject, json.loads(answer["schema"]))

    def by_id(self, number: int) -> Any:
        """Return the schema with that id. Raises RecordError, TransientError."""
        return json.loads(self._ask("GET", f"/schemas/ids/{number}", None)["schema"])

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        reason = ""
        for url in self._urls:
            try:
                return self._one(url + path, method, body)
            except urllib.error.HTTPError as error:
                said = _said(error)
                if error.code in (401, 403):
                    # Of the connector, not of a record: errors.tolerance=all does not leave everything out.
                    raise ConfigError(
                        f"The schema registry at {url} refused the connector: {error.code} {said}.",
                        "Correct basic.auth.* or bearer.auth.token of the converters, or grant the right.",
                    ) from None
                if error.code < 500 and error.code not in (408, 429):
                    raise RecordError(f"The schema registry refused {method} {path}: {error.code} {said}.") from None
                reason = f"{error.code} {said}"
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                reason = str(getattr(error, "reason", "") or type(error).__name__)
            _log.debug("The schema registry at %s did not answer %s: %s", url, path, reason)
        raise TransientError(
            f"The schema registry at {', '.join(self._urls)} did not answer: {reason}.",
            "Check schema.registry.url, and run again.",
        )

    def _one(self, url: str, method: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, "Accept": _TYPE, "Content-Type": _TYPE}
        request = urllib.request.Request(url, data, headers, method=method)
        if self._authorization:
            request.add_header("Authorization", self._authorization)
        with self._open(request, timeout=_SECONDS) as answer:
            document = json.loads(answer.read())
        if not isinstance(document, dict):
            raise ValueError("no JSON object")
        return document


def _registered(answer: dict[str, Any], subject: str, schema: Any) -> Registered:
    return Registered(subject, int(answer["id"]), int(answer["version"]), schema)


def _said(error: urllib.error.HTTPError) -> str:
    """Return the registry's own error code; its text could repeat a schema, never a value."""
    try:
        found = json.loads(error.read())
        return f"({found.get('error_code')}) {str(found.get('message', ''))[:300]}".strip()
    except (ValueError, AttributeError, OSError):
        return str(error.reason)


def _address(url: str, settings: Settings) -> tuple[str, str]:
    """Return the address without a user's name and password, and those."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{settings.name('schema.registry.url')}: an address must be http:// or https://HOST[:PORT].")
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")), user


def _authorization(settings: Settings, in_url: str) -> str:
    source = settings.text("basic.auth.credentials.source", "URL").upper()
    info = settings.get("basic.auth.user.info") or settings.get("schema.registry.basic.auth.user.info") or ""
    if source == "USER_INFO" and not info:
        raise ConfigError(
            f"{settings.name('basic.auth.user.info')} is missing, which has the credentials for USER_INFO."
        )
    if source not in ("URL", "USER_INFO"):
        raise ConfigError(f"{settings.name('basic.auth.credentials.source')} is {source}: expected URL or USER_INFO.")
    bearer = settings.get("bearer.auth.credentials.source")
    token = settings.get("bearer.auth.token")
    if bearer is not None and bearer.upper() != "STATIC_TOKEN":
        raise ConfigError(
            f"{settings.name('bearer.auth.credentials.source')} is {bearer}: wal2lake knows only STATIC_TOKEN."
        )
    if token:
        return f"Bearer {token}"
    user = info if source == "USER_INFO" else in_url
    return "Basic " + base64.b64encode(user.encode()).decode() if user else ""


def _opener(settings: Settings) -> urllib.request.OpenerDirector:
    """Return what opens connections: by the proxy that is configured, else by the environment's (``https_proxy``)."""
    host, port = settings.get("proxy.host"), settings.number("proxy.port", 0, least=0)
    if (host is None) != (port == 0):
        raise ConfigError(f"{settings.name('proxy.host')} and {settings.name('proxy.port')} must be set together.")
    proxies = None if host is None else dict.fromkeys(("http", "https"), f"http://{host}:{port}")
    https = urllib.request.HTTPSHandler(context=_tls(settings))
    return urllib.request.build_opener(urllib.request.ProxyHandler(proxies), https)


def _tls(settings: Settings) -> ssl.SSLContext | None:
    """Return what verifies the registry; a trust store must be PEM, for Python reads no Java key stores."""
    place = settings.get("schema.registry.ssl.truststore.location")
    kind = settings.text("schema.registry.ssl.truststore.type", "JKS").upper()
    if place is None:
        return None
    if kind != "PEM":
        raise ConfigError(f"{settings.name('schema.registry.ssl.truststore.type')} is {kind}: wal2lake reads only PEM.")
    try:
        return ssl.create_default_context(cafile=place)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{settings.name('schema.registry.ssl.truststore.location')}: {error}.") from None
