"""What each connector of a process does, as ``/health`` returns it.

    {"status": "ok", "connectors": {"shop": {"state": "streaming"}, "billing": {"state": "waiting", "cause": "…"}}}

``status`` is ``failed`` (and the response 503) if a run has ended with an error, ``waiting`` if one waits after a
transient fault, else ``ok``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cdc_core.observe.static_pages import Page

HEALTH_PATH = "/health"


class RunState(StrEnum):
    """What a run does. ``FAILED``: it ended with an error, and is started again later. ``ENDED``: nothing is left."""

    STARTING = "starting"
    SNAPSHOT = "snapshot"
    STREAMING = "streaming"
    WAITING = "waiting"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class ConnectorHealth:
    """The state of the connector ``name``, and why it waits or failed."""

    name: str
    state: RunState
    cause: str = ""


def health_page(connectors: Iterable[ConnectorHealth]) -> Page:
    """Return the response."""
    ordered = sorted(connectors, key=lambda connector: connector.name)
    states = {connector.state for connector in ordered}
    worst = next((state.value for state in (RunState.FAILED, RunState.WAITING) if state in states), "ok")
    content = {
        "status": worst,
        "connectors": {
            health.name: {"state": health.state.value, **({"cause": health.cause} if health.cause else {})}
            for health in ordered
        },
    }
    body = json.dumps(content).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    return Page("503 Service Unavailable" if worst == RunState.FAILED else "200 OK", headers, body)
