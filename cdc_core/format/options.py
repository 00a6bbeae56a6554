"""Options of formats."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import option, parse_bool

_OWN = "Own properties of the converter (`schemas.enable`, `schema.registry.url` and others) of"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
CLOUD_EVENTS_CONVERTER = "io.debezium.converters.CloudEventsConverter"
STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BYTES_CONVERTERS = (
    "org.apache.kafka.connect.converters.ByteArrayConverter",
    "io.debezium.converters.ByteArrayConverter",
    "io.debezium.converters.BinaryDataConverter",
)
AVRO_CONVERTER = "io.confluent.connect.avro.AvroConverter"


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
    converter_schemas_enable: str = option(
        "converter.schemas.enable",
        "",
        "Whether JSON has schemas (true or false), for the converters whose own schemas.enable is not set.",
        parse=lambda text: "true" if parse_bool(text) else "false",
    )
