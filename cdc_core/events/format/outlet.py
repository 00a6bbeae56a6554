"""The way out of records: transforms, then the formats of keys, values and headers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import Data, EventBatch
from cdc_core.events.envelope.record import OCTETS, RECORDS, in_order, lines
from cdc_core.events.format.avro_format import AvroFormat
from cdc_core.events.format.cloud_events import CloudEventsFormat
from cdc_core.events.format.format import Format
from cdc_core.events.format.json_format import JsonFormat
from cdc_core.events.format.options import (
    AVRO_CONVERTER,
    BYTE_ARRAY_CONVERTER,
    BYTES_CONVERTERS,
    CLOUD_EVENTS_CONVERTER,
    JSON_CONVERTER,
    NUMBER_CONVERTERS,
    STRING_CONVERTER,
    TEXT_HEADER_CONVERTERS,
    FormatOptions,
)
from cdc_core.events.format.plain import BytesFormat, NumberFormat, StringFormat, TextHeaders
from cdc_core.events.transform.chain import Chain, make_chain
from cdc_core.events.transform.options import ErrorTolerance, TransformOptions
from cdc_core.events.transform.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventOutlet:
    """Transforms and writes batches. ``shows_headers``: lines have headers.

    ``is_raw``: keys and values are the bytes of messages to Kafka; otherwise what represents them in a line.
    """

    chain: Chain
    key: Format
    value: Format
    headers: JsonFormat
    shows_headers: bool
    tolerance: ErrorTolerance
    is_raw: bool = False

    def reach(self) -> None:
        """Ask the registries of schemas for an answer. Raises ConfigError or TransientError."""
        for form in (self.key, self.value):
            if isinstance(form, AvroFormat):
                form.registry.reach()

    def records(self, batch: EventBatch) -> pa.Table:
        """Return RECORDS in the order of (seq, sub). Raises RecordError, unless errors.tolerance is all."""
        return in_order([table for table in self._tolerant(batch) if table.num_rows])

    def lines(self, records: pa.Table) -> list[str]:
        """Return one JSON line per record."""
        return lines(
            records,
            key=f"key{self.key.suffix}",
            value=f"value{self.value.suffix}",
            shows_headers=self.shows_headers,
        )

    def last_lines(self) -> list[str]:
        """Return the lines that formats add at the end of a run, each once."""
        return [line for _, line in sorted([*self.key.last_lines(), *self.value.last_lines()])]

    def _tolerant(self, batch: EventBatch) -> list[pa.Table]:
        """Transform and write; a record that fails is isolated by bisection and skipped if that is permitted."""
        try:
            return [self._written(single) for single in self._in_turn(self.chain.apply(batch))]
        except RecordError as error:
            if self.tolerance is ErrorTolerance.NONE:
                raise RecordError(error.message, error.remedy or _REMEDY) from None
            if len(batch) > 1:
                half = np.arange(len(batch)) < len(batch) // 2
                return [table for part in batch.split(half) for table in self._tolerant(part)]
            _log.warning("An event is left out: %s", error.message)
            return []

    def _in_turn(self, parts: list[EventBatch]) -> list[EventBatch]:
        """Return the parts so that a registry of schemas gets each topic's in the order of the topic's records.

        Expanded payloads of an outbox divide records by schema, whatever their topics are.
        """
        if len(parts) < 2 or not (self.key.registers or self.value.registers):
            return parts
        return sorted((one for part in parts for _, one in part.by_topic()), key=EventBatch.first)

    def _written(self, batch: EventBatch) -> pa.Table:
        key, value = (self._octets(*side, batch) for side in ((self.key, batch.key), (self.value, batch.value)))
        shows_headers = self.shows_headers or self.is_raw
        headers = self.headers.header_list(batch.headers, len(batch)) if shows_headers else None
        columns = [
            pa.array(batch.seq, type=pa.int64()),
            pa.array(batch.sub, type=pa.int32()),
            batch.topic,
            key,
            value,
            pa.repeat(pa.scalar("[]", pa.large_string()), len(batch)) if headers is None else headers,
            pa.nulls(len(batch), pa.int32()) if batch.partition is None else batch.partition,
            pa.nulls(len(batch), pa.int64()) if batch.timestamp is None else batch.timestamp,
        ]
        return pa.Table.from_arrays(columns, schema=RECORDS)

    def _octets(self, form: Format, data: Data, batch: EventBatch) -> pa.Array:
        encoded = form.encode(data, batch)
        return (encoded if self.is_raw else form.shown(encoded)).cast(OCTETS)


_REMEDY = "Correct the transforms or formats, or set errors.tolerance=all to leave such events out."


def make_outlet(transforms: TransformOptions, formats: FormatOptions, *, is_raw: bool = False) -> EventOutlet | None:
    """Create the outlet; None if events are written as JSON with schemas and without transforms.

    ``is_raw`` as in EventOutlet. Kafka's messages have headers with every format: as texts, Connect's default, where
    lines have none.

    Raises ConfigError that names the wrong properties of transforms and converters.
    """
    chain = make_chain(transforms)
    value = _made("value", formats.value_converter, formats)
    key = _made("key", formats.key_converter, formats)
    schemas = value.schemas if isinstance(value, JsonFormat) else True
    headers = _headers(_settings("header", formats), formats.header_converter, schemas)
    if not chain.steps and all(
        isinstance(converter, JsonFormat) and converter.is_default for converter in (key, value, headers)
    ):
        return None
    shows = bool(formats.header_converter) or (key.shows_headers and value.shows_headers)
    if is_raw and not shows:
        headers = TextHeaders(_settings("header", formats))
    return EventOutlet(chain, key, value, headers, shows, transforms.errors_tolerance, is_raw)


def _headers(settings: Settings, name: str, schemas: bool) -> JsonFormat:
    if name in ("", JSON_CONVERTER):
        return JsonFormat(settings, schemas=schemas)
    if name in TEXT_HEADER_CONVERTERS:
        return TextHeaders(settings, java=name == STRING_CONVERTER)
    raise ConfigError(f"header.converter is {name}, which wal2lake does not have.", f"Use {JSON_CONVERTER}.")


def _settings(side: str, formats: FormatOptions) -> Settings:
    given = {"key": formats.key_settings, "value": formats.value_settings, "header": formats.header_settings}
    return Settings(f"{side}.converter", {**dict(formats.common_settings), **dict(given[side])})


def _made(side: str, name: str, formats: FormatOptions) -> Format:
    makers: dict[str, Callable[[Settings], Format]] = {
        JSON_CONVERTER: JsonFormat,
        AVRO_CONVERTER: lambda settings: AvroFormat(settings, is_key=side == "key"),
        CLOUD_EVENTS_CONVERTER: CloudEventsFormat,
        STRING_CONVERTER: StringFormat,
        **{converter: _number(*how) for converter, how in NUMBER_CONVERTERS.items()},
        **{
            converter: partial(_bytes, takes_buffers=converter != BYTE_ARRAY_CONVERTER)
            for converter in BYTES_CONVERTERS
        },
    }
    if name not in makers:
        raise ConfigError(f"{side}.converter is {name}, which wal2lake does not have.")
    return makers[name](_settings(side, formats))


def _number(kind: str, octets: str) -> Callable[[Settings], Format]:
    return lambda settings: NumberFormat(kind, octets)


def _bytes(settings: Settings, *, takes_buffers: bool) -> Format:
    """Return the format of bytes; other types are written by the delegate that is configured, if any."""
    delegate = settings.get("delegate.converter.type")
    if delegate is None:
        return BytesFormat(None, takes_buffers=takes_buffers)
    if delegate != JSON_CONVERTER:
        raise ConfigError(f"{settings.name('delegate.converter.type')} is {delegate}: expected {JSON_CONVERTER}.")
    return BytesFormat(JsonFormat(settings.below("delegate.converter.type")), takes_buffers=takes_buffers)
