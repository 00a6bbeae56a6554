"""Options of formats."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import option

_OWN = "Own properties of the converter (`schemas.enable`, `schema.registry.url` and others) of"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
CLOUD_EVENTS_CONVERTER = "io.debezium.converters.CloudEventsConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
TEXT_HEADER_CONVERTERS = ("org.apache.kafka.connect.storage.SimpleHeaderConverter", STRING_CONVERTER)
BYTE_ARRAY_CONVERTER = "io.debezium.converters.ByteArrayConverter"
BYTES_CONVERTERS = (
    "org.apache.kafka.connect.converters.ByteArrayConverter",
    BYTE_ARRAY_CONVERTER,
    "io.debezium.converters.BinaryDataConverter",
)
_CONVERTERS = "org.apache.kafka.connect.converters."
# Connect's type of each, and NumPy's of its bytes.
NUMBER_CONVERTERS = {
    f"{_CONVERTERS}BooleanConverter": ("boolean", "u1"),
    f"{_CONVERTERS}ShortConverter": ("int16", ">i2"),
    f"{_CONVERTERS}IntegerConverter": ("int32", ">i4"),
    f"{_CONVERTERS}LongConverter": ("int64", ">i8"),
    f"{_CONVERTERS}FloatConverter": ("float", ">f4"),
    f"{_CONVERTERS}DoubleConverter": ("double", ">f8"),
}
AVRO_CONVERTER = "io.confluent.connect.avro.AvroConverter"


# With one of these Debezium replaces characters in field names that Avro does not permit.
_AVRO_CONVERTERS = (AVRO_CONVERTER, "io.apicurio.registry.utils.converter.AvroConverter")


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Converters. Their own properties are checked when they are created."""

    key_converter: str = option(
        "key.converter", JSON_CONVERTER, "Class of the format of events' keys; they do not apply to the lake."
    )
    value_converter: str = option("value.converter", JSON_CONVERTER, "Class of the format of events' values.")
    header_converter: str = option(
        "header.converter",
        "",
        "Class of the format of events' headers. By default JSON, with schemas if values have them; the headers of "
        "Avro records and CloudEvents are written only if it is set.",
    )
    key_settings: tuple[tuple[str, str], ...] = option(
        "key.converter.*", (), f"{_OWN} keys.", parse=str, pattern=r"key\.converter\.(.+)"
    )
    value_settings: tuple[tuple[str, str], ...] = option(
        "value.converter.*", (), f"{_OWN} values.", parse=str, pattern=r"value\.converter\.(.+)"
    )
    header_settings: tuple[tuple[str, str], ...] = option(
        "header.converter.*", (), f"{_OWN} headers.", parse=str, pattern=r"header\.converter\.(.+)"
    )
    common_settings: tuple[tuple[str, str], ...] = option(
        "converter.*",
        (),
        "Properties of all converters, used where a converter's own are not set, such as `converter.schemas.enable`.",
        parse=str,
        pattern=r"converter\.(.+)",
    )

    @property
    def is_avro(self) -> bool:
        """Whether keys or values are Avro, so that field names are adjusted for it in any case."""
        return self.key_converter in _AVRO_CONVERTERS or self.value_converter in _AVRO_CONVERTERS
