"""The options that runs of events share."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.schema import SchemaOptions
from cdc_core.selection import SelectionOptions
from cdc_core.snapshot import SignalOptions, SnapshotOptions
from cdc_core.types import TypeOptions


@dataclass(frozen=True, slots=True)
class EventSettings:
    """A connector's options of events."""

    selection: SelectionOptions
    snapshot: SnapshotOptions
    signals: SignalOptions
    schema: SchemaOptions
    types: TypeOptions
