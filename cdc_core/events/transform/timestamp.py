"""TimestampConverter: times as text, Unix time or Connect's Date, Time and Timestamp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cdc_core.errors import ConfigError, RecordError
from cdc_core.events.envelope.batch import Data, EventBatch, arrow_type, struct
from cdc_core.events.transform.date_format import DateFormat
from cdc_core.events.transform.fields import Side, basics, columns_of, schema_of
from cdc_core.events.transform.kafka_fields import TIMESTAMP, each
from cdc_core.events.transform.settings import Settings
from cdc_core.schema import ConnectSchema

_DAY = 86_400_000
_CONNECT = "org.apache.kafka.connect.data."
_TARGETS = {
    "string": ConnectSchema("string"),
    "unix": ConnectSchema("int64"),
    "Date": ConnectSchema("int32", name=f"{_CONNECT}Date", version=1),
    "Time": ConnectSchema("int32", name=f"{_CONNECT}Time", version=1),
    "Timestamp": TIMESTAMP,
}
# Units per millisecond; a negative number: milliseconds per unit.
_PRECISIONS = {"seconds": -1000, "milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}


class TimestampConverter:
    """Converts one field, or the whole key or value if ``field`` is empty."""

    def __init__(self, settings: Settings, side: Side) -> None:
        self._side = side
        self._field = settings.exact("field", "")
        self._target = settings.choice("target.type", _TARGETS)
        self._precision = _PRECISIONS[settings.choice("unix.precision", _PRECISIONS, "milliseconds")]
        pattern = settings.get("format")
        if pattern is None and self._target == "string":
            raise ConfigError(f"{settings.name('format')} is missing: {settings.name('target.type')} is string.")
        self._format = None if pattern is None else DateFormat(pattern, settings.name("format"))
        self._defaults = settings.flag("replace.null.with.default", True)

    def apply(self, batch: EventBatch) -> list[EventBatch]:
        """Change every key or value with a schema."""
        data = self._side.get(batch)
        if data.schema is None:
            return [batch]
        if not self._field:
            return [self._side.put(batch, self._converted(data))]
        schema = schema_of(data, "converting timestamp formats")
        fields, columns = list(schema.fields), columns_of(data, defaults=self._defaults)
        for at, (name, field) in enumerate(schema.fields):
            if name == self._field:
                made = self._converted(Data(field, columns[at]))
                fields[at], columns[at] = (name, made.connect_schema), made.values
        changed = basics(schema, fields).replace(optional=schema.optional)
        return [self._side.put(batch, struct(changed, columns, data.valid))]

    def _converted(self, data: Data) -> Data:
        source = data.connect_schema
        target = _TARGETS[self._target].replace(optional=source.optional)
        read, write = self._reader(source), self._writer()
        try:
            return Data(target, each(data.values, lambda value: write(read(value)), arrow_type(target)))
        except (ValueError, OverflowError):
            raise RecordError("TimestampConverter cannot convert a value as configured.") from None

    def _reader(self, source: ConnectSchema) -> Callable[[Any], int]:
        """Return a function from a value to milliseconds since 1970."""
        if source.name in (f"{_CONNECT}Timestamp", f"{_CONNECT}Time"):
            return int
        if source.name == f"{_CONNECT}Date":
            return lambda value: int(value) * _DAY
        if source.type == "string":
            if self._format is None:
                raise RecordError("TimestampConverter needs format to read a text.")
            return self._format.millis
        if source.type == "int64":
            return self._millis
        raise RecordError(f"TimestampConverter does not read {source.name or source.type}.")

    def _millis(self, value: int) -> int:
        if self._precision < 0:
            return value * -self._precision
        return int(abs(value) // self._precision * (1 if value >= 0 else -1))  # Java's division, towards zero

    def _unix(self, millis: int) -> int:
        if self._precision < 0:
            return int(abs(millis) // -self._precision * (1 if millis >= 0 else -1))
        return millis * self._precision

    def _writer(self) -> Callable[[int], Any]:
        writers: dict[str, Callable[[int], Any]] = {
            "unix": self._unix,
            "Date": lambda millis: millis // _DAY,
            "Time": lambda millis: millis % _DAY,
            "Timestamp": lambda millis: millis,
        }
        if self._format is not None:
            writers["string"] = self._format.text
        return writers[self._target]
