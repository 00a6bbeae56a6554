"""Every property that a connector file may hold, gathered from the rooms that declare them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from cdc_core.config.elsewhere import declared_elsewhere
from cdc_core.engine.options import EngineOptions
from cdc_core.envelope.options import EnvelopeOptions
from cdc_core.option import Property, properties_of
from cdc_core.postgres.options import PostgresOptions
from cdc_core.quality.options import QualityOptions
from cdc_core.schema.options import SchemaOptions
from cdc_core.selection.options import SelectionOptions
from cdc_core.sink.options import SinkOptions
from cdc_core.snapshot.options import SnapshotOptions
from cdc_core.snapshot.signals.options import SignalOptions
from cdc_core.types.options import TypeOptions

# Attribute of ConnectorConfig → (heading in the documentation, options class), in the order of the flow.
ROOMS: dict[str, tuple[str, type[Any]]] = {
    "postgres": ("Connection, slot and publication", PostgresOptions),
    "schema": ("Names and keys", SchemaOptions),
    "selection": ("What is captured", SelectionOptions),
    "types": ("Types", TypeOptions),
    "envelope": ("Events", EnvelopeOptions),
    "snapshot": ("Snapshots", SnapshotOptions),
    "signals": ("Signals and notifications", SignalOptions),
    "sink": ("The lake", SinkOptions),
    "quality": ("Quality", QualityOptions),
    "engine": ("Runs", EngineOptions),
}
# Properties of Debezium 1.x that are translated rather than renamed: name → what holds in their place.
TRANSLATED = {"truncate.handling.mode": "skipped.operations"}


@dataclass(frozen=True, slots=True)
class Found:
    """A name of a connector file, recognised. ``room`` and ``field`` are empty for what steers no room.

    ``groups`` are a family's variable parts. ``alias`` tells an older name from the property's own.
    """

    property: Property
    room: str = ""
    field: str = ""
    groups: tuple[str, ...] = ()
    alias: bool = False


@cache
def _named() -> dict[str, Found]:
    found: dict[str, Found] = {}
    for room, (_, options) in ROOMS.items():
        for field, declared in properties_of(options).items():
            if declared.pattern:
                continue
            found[declared.name] = Found(declared, room, field)
            for alias in declared.aliases:
                found[alias] = Found(declared, room, field, alias=True)
    for declared in declared_elsewhere():
        if not declared.pattern:
            found.setdefault(declared.name, Found(declared))
    return found


@cache
def _families() -> tuple[tuple[re.Pattern[str], Property, str, str], ...]:
    rooms = [
        (re.compile(declared.pattern), declared, room, field)
        for room, (_, options) in ROOMS.items()
        for field, declared in properties_of(options).items()
        if declared.pattern
    ]
    others = [(re.compile(d.pattern), d, "", "") for d in declared_elsewhere() if d.pattern]
    return (*rooms, *others)


def find(name: str) -> Found | None:
    """What a name of a connector file is, or None where nothing declares it."""
    found = _named().get(name)
    if found is not None:
        return found
    for pattern, declared, room, field in _families():
        match = pattern.fullmatch(name)
        if match:
            return Found(declared, room, field, match.groups() if room else ())
    return None


def is_declared(name: str) -> bool:
    """Whether a connector file may hold that name."""
    return name in TRANSLATED or find(name) is not None


def nearest(name: str) -> str | None:
    """The declared name most like ``name``, or None where none is alike."""
    names = [*_named(), *(declared.name for _, declared, _, _ in _families())]
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def declared_by_room() -> dict[str, tuple[Property, ...]]:
    """Heading → its properties, those that steer no room last."""
    rooms = {title: tuple(properties_of(options).values()) for title, options in ROOMS.values()}
    return {**rooms, "Read, but not obeyed": declared_elsewhere()}
