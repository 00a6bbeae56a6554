"""Formats of keys, values and headers by Kafka Connect's converters: JSON, Avro, CloudEvents, strings, bytes."""
