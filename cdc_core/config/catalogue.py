"""All properties of a connector file, collected from the packages that declare them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from cdc_core.catalogs import CatalogOptions
from cdc_core.config.unsupported import unsupported_properties
from cdc_core.engine import EngineOptions
from cdc_core.events import EnvelopeOptions, FormatOptions, KafkaOptions, TransformOptions
from cdc_core.lake import LakeOptions
from cdc_core.lineage import LineageOptions
from cdc_core.observe import ObserveOptions
from cdc_core.option import Property, properties_of
from cdc_core.postgres import PostgresOptions
from cdc_core.quality import QualityOptions
from cdc_core.reconcile import ReconcileOptions
from cdc_core.schema import SchemaOptions
from cdc_core.selection import SelectionOptions
from cdc_core.snapshot import SignalOptions, SnapshotOptions
from cdc_core.telemetry import TelemetryOptions
from cdc_core.types import TypeOptions

# Attribute of ConnectorConfig → (heading in the documentation, options class), in the order of the data flow.
PACKAGES: dict[str, tuple[str, type[Any]]] = {
    "postgres": ("Connection, slot and publication", PostgresOptions),
    "schema": ("Names and keys", SchemaOptions),
    "selection": ("What is captured", SelectionOptions),
    "types": ("Types", TypeOptions),
    "envelope": ("Events", EnvelopeOptions),
    "transforms": ("Transforms of events", TransformOptions),
    "formats": ("Formats of events", FormatOptions),
    "snapshot": ("Snapshots", SnapshotOptions),
    "signals": ("Signals and notifications", SignalOptions),
    "lake": ("The lake", LakeOptions),
    "kafka": ("Kafka", KafkaOptions),
    "quality": ("Quality", QualityOptions),
    "engine": ("Runs", EngineOptions),
    "reconcile": ("Comparison with the source", ReconcileOptions),
    "observe": ("Schedules and metrics", ObserveOptions),
    "lineage": ("Lineage", LineageOptions),
    "catalogs": ("Catalogs", CatalogOptions),
    "telemetry": ("Telemetry", TelemetryOptions),
}
# Properties of Debezium 1.x that are translated rather than renamed: name → the property used instead.
TRANSLATED = {"truncate.handling.mode": "skipped.operations"}


@dataclass(frozen=True, slots=True)
class KnownProperty:
    """A known name of a connector file. ``package`` and ``field`` are empty for properties without effect.

    ``groups`` are a family's variable parts. ``alias``: it is an older name.
    """

    property: Property
    package: str = ""
    field: str = ""
    groups: tuple[str, ...] = ()
    alias: bool = False


@cache
def _named() -> dict[str, KnownProperty]:
    by_name: dict[str, KnownProperty] = {}
    for package, (_, options) in PACKAGES.items():
        for field, declared in properties_of(options).items():
            if declared.pattern:
                continue
            by_name[declared.name] = KnownProperty(declared, package, field)
            for alias in declared.aliases:
                by_name[alias] = KnownProperty(declared, package, field, alias=True)
    for declared in unsupported_properties():
        if not declared.pattern:
            by_name.setdefault(declared.name, KnownProperty(declared))
    return by_name


@cache
def _families() -> tuple[tuple[re.Pattern[str], Property, str, str], ...]:
    packages = [
        (re.compile(declared.pattern), declared, package, field)
        for package, (_, options) in PACKAGES.items()
        for field, declared in properties_of(options).items()
        if declared.pattern
    ]
    others = [(re.compile(d.pattern), d, "", "") for d in unsupported_properties() if d.pattern]
    return (*packages, *others)


def property_of(name: str) -> KnownProperty:
    """Return the declaration of a property by its name. Raises KeyError."""
    return _named()[name]


def find(name: str) -> KnownProperty | None:
    """Return the declaration for a name of a connector file, or None if there is none."""
    found = _named().get(name)
    if found is not None:
        return found
    for pattern, declared, package, field in _families():
        match = pattern.fullmatch(name)
        if match:
            return KnownProperty(declared, package, field, match.groups() if package else ())
    return None


def is_declared(name: str) -> bool:
    """Whether a connector file may contain that name."""
    return name in TRANSLATED or find(name) is not None


def nearest(name: str) -> str | None:
    """Return the declared name most similar to ``name``, or None if none is similar."""
    names = [*_named(), *(declared.name for _, declared, _, _ in _families())]
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def declared_by_package() -> dict[str, tuple[Property, ...]]:
    """Return heading → its properties, with those of no package last."""
    packages = {title: tuple(properties_of(options).values()) for title, options in PACKAGES.values()}
    return {**packages, "Accepted, without effect": unsupported_properties()}
