"""The connector file as one value: every package's options, and warnings about them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_core.catalogs import CatalogOptions
from cdc_core.config.catalogue import find
from cdc_core.config.checks import check, unready
from cdc_core.config.properties_file import parse_properties, property_lines
from cdc_core.config.reader import PropertyReader, Setting
from cdc_core.engine import EngineOptions
from cdc_core.errors import ConfigError
from cdc_core.events import EnvelopeOptions, FormatOptions, KafkaOptions, TransformOptions
from cdc_core.lake import LakeOptions
from cdc_core.lineage import LineageOptions
from cdc_core.observe import ObserveOptions
from cdc_core.postgres import PostgresOptions
from cdc_core.quality import QualityOptions
from cdc_core.reconcile import ReconcileOptions
from cdc_core.schema import NameAdjustmentMode, SchemaOptions
from cdc_core.selection import SelectionOptions
from cdc_core.snapshot import SignalOptions, SnapshotOptions
from cdc_core.telemetry import TelemetryOptions
from cdc_core.types import TypeOptions

if TYPE_CHECKING:
    from cdc_core.events import EventOutlet


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """One connector, as configured.

    ``source`` names the file, ``connector_name`` is its property ``name`` or the topic prefix. ``warnings`` are lines
    for the log. ``settings`` are the file's own entries, references unresolved; they are not in the repr, because of
    secrets. Picklable: a secret is pickled as written in the file.
    """

    source: str
    connector_name: str
    postgres: PostgresOptions
    schema: SchemaOptions
    selection: SelectionOptions
    types: TypeOptions
    envelope: EnvelopeOptions
    transforms: TransformOptions
    formats: FormatOptions
    snapshot: SnapshotOptions
    signals: SignalOptions
    lake: LakeOptions
    kafka: KafkaOptions
    quality: QualityOptions
    engine: EngineOptions
    reconcile: ReconcileOptions
    observe: ObserveOptions
    lineage: LineageOptions
    catalogs: CatalogOptions
    telemetry: TelemetryOptions
    warnings: tuple[str, ...] = ()
    settings: tuple[Setting, ...] = field(default=(), repr=False)

    def require_carried(self) -> None:
        """Raise ConfigError if a chosen value is not supported yet, so that no run is started with it.

        Such a file can be read and explained, but not run.
        """
        missing = unready(self.snapshot, self.types)
        if missing:
            raise ConfigError(" ".join(missing))

    def require_lake(self) -> None:
        """Raise ConfigError if changes are to be written to a lake without a path.

        Debezium's own files contain no lake; reading them, and writing their events, does not require one.
        """
        if "lake" in self.engine.sinks and not self.lake.lake_path:
            raise ConfigError(
                f"{self.source}: wal2lake.lake.path is missing.",
                "Set it to a folder or URI, or set wal2lake.sinks=noop.",
            )

    def outlet(self, *, is_raw: bool = False) -> EventOutlet | None:
        """Return the transforms and formats of events, None if there are none; for one run.

        ``is_raw``: as bytes of messages, not as lines (``EventOutlet``). Raises ConfigError if a class is unknown or a
        property of one is not valid.
        """
        from cdc_core.events import make_outlet

        try:
            return make_outlet(self.transforms, self.formats, is_raw=is_raw)
        except ConfigError as error:
            raise ConfigError(f"{self.source}: {error.message}", error.remedy) from None

    @property
    def state_path(self) -> Path:
        """``wal2lake.state.path``, or its default under the working folder."""
        return Path(self.engine.state_path or f".wal2lake/{self.schema.topic_prefix}")


def load(path: Path | str, overrides: Sequence[tuple[str, str]] = ()) -> ConnectorConfig:
    """Read a connector file: Debezium's .properties, or JSON as ``{"name": …, "config": {…}}`` or flat.

    ``overrides`` replace the file's properties of these names, and of older names of the same.

    Raises ConfigError, with every problem in one message, before anything is started.
    """
    replaced = {_present_name(name) for name, _ in overrides}
    kept = [entry for entry in file_entries(path) if not replaced or _present_name(entry[0]) not in replaced]
    return from_entries([*kept, *overrides], f"{path} with --set" if overrides else str(path))


def _present_name(name: str) -> str:
    found = find(name.strip())
    return name.strip() if found is None or found.property.pattern else found.property.name


def file_entries(path: Path | str) -> list[tuple[str, str]]:
    """Return a connector file's (name, value) pairs as written, in their order. Raises ConfigError."""
    text = _text_of(path)
    return _json_entries(text, str(path)) if _is_json(path, text) else list(parse_properties(text, str(path)))


def line_of(path: Path | str, name: str) -> int | None:
    """Return the line of a connector file, counted from 1, in which a property is set; None if it is not found."""
    text = _text_of(path)
    if not _is_json(path, text):
        return property_lines(text, str(path)).get(name)
    lines = (
        number for number, line in enumerate(text.splitlines(), 1) if f"{json.dumps(name)}:" in line.replace(" ", "")
    )
    return next(lines, None)


def _text_of(path: Path | str) -> str:
    try:
        octets = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"The connector file {path} cannot be read: {error.strerror}.") from None
    try:
        return octets.decode("utf-8-sig")
    except UnicodeDecodeError:
        # The encoding of .properties files before Java 9.
        return octets.decode("latin-1")


def _is_json(path: Path | str, text: str) -> bool:
    return Path(path).suffix.lower() == ".json" or text.lstrip().startswith("{")


def from_entries(entries: Iterable[tuple[str, str]], source: str = "the configuration") -> ConnectorConfig:
    """As ``load``, from (name, value) pairs in their order. Raises ConfigError."""
    reader = PropertyReader(source)
    for name, text in entries:
        reader.take(name, text)
    packages = reader.packages()
    problems, warnings = check(packages, reader.given)
    if packages["formats"].is_avro and packages["schema"].field_adjustment is NameAdjustmentMode.NONE:
        packages["schema"] = replace(packages["schema"], field_name_adjustment_mode=NameAdjustmentMode.AVRO)
    settings = reader.settings()
    properties = tuple((setting.shown_name, setting.shown) for setting in settings)
    packages["snapshot"] = replace(packages["snapshot"], properties=properties)
    reader.raise_for([*reader.problems, *problems])
    return ConnectorConfig(
        source=source,
        connector_name=reader.given.get("name", "").strip() or packages["schema"].topic_prefix,
        **packages,
        warnings=(*reader.warnings(), *warnings, *unready(packages["snapshot"], packages["types"])),
        settings=settings,
    )


def _json_entries(text: str, source: str) -> list[tuple[str, str]]:
    try:
        raw = json.loads(text, object_pairs_hook=list)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is not JSON: {error.msg} in line {error.lineno}.") from None
    if not isinstance(raw, list) or not all(isinstance(item, tuple) for item in raw):
        raise ConfigError(
            f"{source} is not a JSON object.", 'Write {"name": "…", "config": {…}} or the properties alone.'
        )
    outer = dict(raw)
    if isinstance(outer.get("config"), list):
        name = outer.get("name")
        inner = outer["config"]
        pairs = [("name", name), *inner] if name is not None and "name" not in dict(inner) else inner
    else:
        pairs = raw
    return [(name, _json_text(value, name, source)) for name, value in pairs if value is not None]


def _json_text(value: Any, name: str, source: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise ConfigError(f"{source}: {name} holds an object or a list.", "Write its value as text.")
