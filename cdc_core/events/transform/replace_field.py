"""ReplaceField: fields excluded, included or renamed."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import Data, EventBatch
from cdc_core.events.transform.fields import Side, basics, columns_of, schema_of, where_set, with_fields
from cdc_core.events.transform.settings import Settings


def without_fields(data: Data, names: Iterable[str]) -> Data:
    """Return structs without some fields; nulls are replaced by defaults."""
    left_out = set(names)
    return _chosen(data, lambda name: name not in left_out, {}, defaults=True)


def _chosen(data: Data, keep, renames: dict[str, str], *, defaults: bool) -> Data:  # type: ignore[no-untyped-def]
    schema = schema_of(data, "field replacement")
    columns = dict(zip((name for name, _ in schema.fields), columns_of(data, defaults=defaults), strict=True))
    fields = [(renames.get(name, name), field) for name, field in schema.fields if keep(name)]
    # As in Kafka a value is looked up by its field's new name: the last name that is renamed to it, or itself.
    sources = {new: old for old, new in renames.items()}
    chosen = []
    for name, _ in fields:
        source = sources.get(name, name)
        if source not in columns:
            raise RecordError(f"{source} is not a field, of which renames makes {name}.")
        chosen.append(columns[source])
    return with_fields(basics(schema, fields), chosen, len(data))


class ReplaceField:
    """Removes fields (``exclude``), keeps only some (``include``) and renames them (``renames``)."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._exclude = set(settings.items("exclude"))
        self._include = set(settings.items("include"))
        self._renames = pairs(settings, "renames")
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value that is not null."""
        return where_set(batch, self._side, self._change)

    def _change(self, batch: EventBatch) -> list[EventBatch]:
        data = self._side.get(batch)
        return [self._side.put(batch, _chosen(data, self._keeps, self._renames, defaults=self._defaults))]

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)


def pairs(settings: Settings, name: str) -> dict[str, str]:
    """Return ``a:b,c:d`` as a dictionary."""
    found = {}
    for item in settings.items(name):
        parts = item.split(":")
        if len(parts) != 2:
            raise ConfigError(f"{settings.name(name)}: {item!r} is not a pair NAME:NAME.")
        found[parts[0].strip()] = parts[1].strip()
    return found
