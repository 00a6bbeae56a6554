"""The chain of a connector's transforms, from its properties, by the class names of Kafka Connect.

A file made for Kafka Connect may name classes that are not here, which only matters when events are written: creating
the chain raises ConfigError then, and ``wal2lake check`` shows the same text as a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from cdc_core.errors import ConfigError
from cdc_core.events.envelope.batch import EventBatch
from cdc_core.events.transform.cast import Cast
from cdc_core.events.transform.changed import ExtractChangedRecordState
from cdc_core.events.transform.fields import Side, Transform
from cdc_core.events.transform.headers import DropHeaders, Filter, HeaderFrom, InsertHeader
from cdc_core.events.transform.kafka_fields import ExtractField, HoistField, InsertField, MaskField, ValueToKey
from cdc_core.events.transform.older_names import replace_older
from cdc_core.events.transform.options import TransformOptions
from cdc_core.events.transform.outbox import EventRouter
from cdc_core.events.transform.partition import PartitionRouting
from cdc_core.events.transform.predicates import HasHeaderKey, Predicate, RecordIsTombstone, TopicNameMatches
from cdc_core.events.transform.replace_field import ReplaceField
from cdc_core.events.transform.reroute import ByLogicalTableRouter
from cdc_core.events.transform.reshape import Flatten, SetSchemaMetadata
from cdc_core.events.transform.settings import Settings
from cdc_core.events.transform.timestamp import TimestampConverter
from cdc_core.events.transform.topics import RegexRouter, TimestampRouter
from cdc_core.events.transform.unwrap import ExtractNewRecordState

T = TypeVar("T")

_KAFKA, _DEBEZIUM = "org.apache.kafka.connect.transforms.", "io.debezium.transforms."
_PLAIN: dict[str, Callable[[Settings], Transform]] = {
    f"{_DEBEZIUM}ExtractNewRecordState": ExtractNewRecordState,
    f"{_DEBEZIUM}ExtractChangedRecordState": ExtractChangedRecordState,
    f"{_DEBEZIUM}ByLogicalTableRouter": ByLogicalTableRouter,
    f"{_DEBEZIUM}outbox.EventRouter": EventRouter,
    f"{_DEBEZIUM}partitions.PartitionRouting": PartitionRouting,
    f"{_KAFKA}RegexRouter": RegexRouter,
    f"{_KAFKA}TimestampRouter": TimestampRouter,
    f"{_KAFKA}ValueToKey": ValueToKey,
    f"{_KAFKA}InsertHeader": InsertHeader,
    f"{_KAFKA}DropHeaders": DropHeaders,
    f"{_KAFKA}Filter": lambda settings: Filter(),
}
_SIDED: dict[str, Callable[[Settings, Side], Transform]] = {
    f"{_KAFKA}{made.__name__}": made
    for made in (
        *(ReplaceField, InsertField, MaskField, ExtractField, HoistField, Cast, TimestampConverter, HeaderFrom),
        *(Flatten, SetSchemaMetadata),
    )
}
TRANSFORMS: dict[str, Callable[[Settings], Transform]] = _PLAIN | {
    f"{name}${side}": (lambda settings, made=made, side=side: made(settings, side))
    for name, made in _SIDED.items()
    for side in Side
}
PREDICATES: dict[str, Callable[[Settings], Predicate]] = {
    f"{_KAFKA}predicates.TopicNameMatches": TopicNameMatches,
    f"{_KAFKA}predicates.HasHeaderKey": HasHeaderKey,
    f"{_KAFKA}predicates.RecordIsTombstone": lambda settings: RecordIsTombstone(),
}
_SCRIPTS = {
    f"{_DEBEZIUM}Filter": "wal2lake does not run scripts: use org.apache.kafka.connect.transforms.Filter with a "
    "predicate, table.include.list, or a row filter of the publication",
    f"{_DEBEZIUM}ContentBasedRouter": "wal2lake does not run scripts: use RegexRouter or ByLogicalTableRouter with a "
    "predicate, or route.by.field of ExtractNewRecordState",
}


@dataclass(frozen=True, slots=True)
class TransformStep:
    """One transform, with the predicate that decides about a record."""

    transform: Transform
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Apply the transform to the records it is for; the others remain."""
        if self.predicate is None:
            return self.transform.apply(batch)
        chosen, others = batch.split(self.predicate.test(batch) != self.negate)
        return [*(self.transform.apply(chosen) if len(chosen) else []), *([others] if len(others) else [])]


class Chain:
    """Transforms in their order.

    ``unread``: properties that no class knows, which Connect ignores, too. ``older``: warnings of older names.
    """

    def __init__(
        self, steps: tuple[TransformStep, ...] = (), *, unread: tuple[str, ...] = (), older: tuple[str, ...] = ()
    ) -> None:
        self.steps = steps
        self.unread = unread
        self.older = older

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Return the records that result from all transforms, batches by their first record. Raises RecordError.

        What remembers the first that it saw, a step or the registry of schemas, thus sees the first record first.
        """
        batches = [batch] if len(batch) else []
        for step in self.steps:
            batches = [made for one in batches for made in step.apply(one) if len(made)]
            batches.sort(key=EventBatch.first)
        return batches


def make_chain(options: TransformOptions) -> Chain:
    """Create the chain. Raises ConfigError with every problem in one text."""
    problems: list[str] = []
    older: list[str] = []
    all_settings: list[Settings] = []
    predicates: dict[str, Predicate] = {}
    for name in options.predicates:
        settings = _settings("predicates", name, options.predicate_settings, ("type",), older, problems)
        all_settings.append(settings)
        predicate = _made(settings, PREDICATES, problems)
        if predicate is not None:
            predicates[name] = predicate
    steps = []
    for name in options.transforms:
        settings = _settings(
            "transforms", name, options.transform_settings, ("type", "predicate", "negate"), older, problems
        )
        all_settings.append(settings)
        transform = _made(settings, TRANSFORMS, problems)
        chosen = settings.get("predicate")
        if chosen is not None and chosen not in options.predicates:
            problems.append(f"{settings.name('predicate')} is {chosen!r}, which predicates does not list.")
        try:
            negate = settings.flag("negate", False)
        except ConfigError as error:
            problems.append(error.message)
            continue
        if transform is not None and (chosen is None or chosen in predicates):
            steps.append(TransformStep(transform, predicates.get(chosen or ""), negate))
    if problems:
        raise ConfigError(" ".join(problems))
    unread = tuple(text for settings in all_settings for text in settings.unread())
    return Chain(tuple(steps), unread=unread, older=tuple(older))


def _settings(
    root: str,
    name: str,
    pairs: tuple[tuple[str, str], ...],
    known: tuple[str, ...],
    older: list[str],
    problems: list[str],
) -> Settings:
    """Return the properties below a name, older names replaced, which ``older`` and ``problems`` report."""
    head = f"{name}."
    values = {key.removeprefix(head): text for key, text in pairs if key.startswith(head)}
    try:
        older += replace_older(f"{root}.{name}", values)
    except ConfigError as error:
        problems.append(str(error))
    return Settings(f"{root}.{name}", values, known)


def _made(settings: Settings, classes: dict[str, Callable[[Settings], T]], problems: list[str]) -> T | None:
    try:
        name = settings.text("type")
        if name in _SCRIPTS:
            raise ConfigError(f"{settings.name('type')} is {name}: {_SCRIPTS[name]}.")
        if name not in classes:
            hint = " Add $Key or $Value to its name." if name in _SIDED else ""
            raise ConfigError(f"{settings.name('type')} is {name}, which wal2lake does not have.{hint}")
        return classes[name](settings)
    except ConfigError as error:
        problems.append(str(error))
        return None
