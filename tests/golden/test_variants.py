"""Transforms and formats with many settings, recorded on Debezium 3.6.3: one stream, and what each variant makes of it.

Debezium's engine gave its records once; Kafka Connect's chain of transforms, predicates and converters was applied to
each of them with the properties of each variant. A record that failed there is left out, as by errors.tolerance=all. A
file holds, for each variant, its properties and its records, then the Avro schemas that it registered.
"""

from __future__ import annotations

import io
import itertools
import json
import lzma
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from cdc_core.config.connector import from_entries
from tests.golden.test_replay import RECORDED, RESTS
from tests.support.cluster import Cluster
from tests.support.envelope_driver import EnvelopeDriver, config_for
from tests.support.line_compare import normal
from tests.support.registry import TestRegistry
from tests.support.tee import Tee

pytestmark = pytest.mark.postgres

FOLDER = Path(__file__).parent / "variants"
BASES = {
    "main": ([], ["types_rows.sql", "changes.sql"], {"provide.transaction.metadata": "true"}),
    "outbox": (["outbox_tables.sql"], ["outbox_rows.sql"], {}),
    "connect": (
        [],
        ["types_rows.sql", "changes.sql"],
        {
            "time.precision.mode": "connect",
            "hstore.handling.mode": "json",
            "interval.handling.mode": "string",
            "decimal.handling.mode": "string",
            "extended.headers.enabled": "false",
            "provide.transaction.metadata": "true",
        },
    ),
}
REGISTRY = "@REGISTRY@"
_CLOCK = re.compile(r"\b1(?:7[1-9]|[89]\d)\d{10}(?:\d{3}){0,2}\b")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_POSITION = re.compile(r"(?<=[\"=])\d+:\d+(?=[\"}])")


@pytest.fixture(scope="module", params=BASES)
def streamed(debian15: Cluster, request: pytest.FixtureRequest) -> Iterator[tuple[str, Tee]]:
    """The name of a base, and the batches of its stream."""
    name = str(request.param)
    database, tee = f"base_{name}", Tee()
    before, during, properties = BASES[name]
    debian15.database(name=database)
    for script in (RECORDED / "types.sql", *(FOLDER / one for one in before)):
        debian15.run_script(database, script)
    given = "".join(f"{key}={value}\n" for key, value in properties.items())
    text = (RECORDED / "stream.properties").read_text().replace("golden_stream", database) + given
    run = EnvelopeDriver(config_for(text, debian15))
    run.context = replace(run.context, outlet=tee)
    try:
        run.prepare()
        run.stream(lambda settle: _changes(debian15, database, during, settle))
    finally:
        debian15.drop_database(database)
    yield name, tee


def _changes(cluster: Cluster, database: str, scripts: list[str], settle: Any) -> None:
    """The scripts in parts. A message after each of them told the recording that the part had come."""
    number = itertools.count(1)
    for script in scripts:
        folder = FOLDER if (FOLDER / script).exists() else RECORDED
        for part in RESTS.split((folder / script).read_text()):
            if part.strip():
                with tempfile.NamedTemporaryFile("w", suffix=".sql", encoding="utf-8") as file:
                    file.write(part)
                    file.flush()
                    cluster.run_script(database, file.name)
                cluster.execute(database, "select pg_logical_emit_message(true, 'rest', %s)", [str(next(number))])
                settle()


def test_every_variant_is_debeziums(streamed: tuple[str, Tee]) -> None:
    name, tee = streamed
    problems = []
    for variant, properties, expected in _recorded(name):
        found = _made(properties, tee)
        for at, (one, other) in enumerate(itertools.zip_longest(expected, found)):
            if one is None or other is None or _plain(one) != _plain(other):
                problems.append(f"{variant}, line {at}: expected {str(one)[:700]}\n found {str(other)[:700]}")
                break
    assert not problems, f"{len(problems)} variants differ\n" + "\n".join(problems[:5])


def _recorded(name: str) -> Iterator[tuple[str, dict[str, str], list[dict[str, Any]]]]:
    lines = lzma.decompress((FOLDER / f"{name}.jsonl.xz").read_bytes()).decode().split("\n")
    current: tuple[str, dict[str, str], list[dict[str, Any]]] | None = None
    for line in lines:
        one = json.loads(line)
        if "variant" in one:
            if current is not None:
                yield current
            current = one["variant"], one["properties"], []
        elif current is not None:
            current[2].append(one)
    if current is not None:
        yield current


def _made(properties: dict[str, str], tee: Tee) -> list[dict[str, Any]]:
    """The records of a variant as its recording has them."""
    with TestRegistry() as registry:
        given = {key: value.replace(REGISTRY, registry.url) for key, value in properties.items()}
        config = from_entries({**_FILE, **given}.items())
        outlet = config.outlet(is_raw=True)
        assert outlet is not None
        table = tee.through(outlet)
        schemas = [fastavro.parse_schema(json.loads(one)) for one in registry.schemas]
        found = [
            {"schema": {"subject": subject, "version": version, "schema": json.loads(registry.schemas[number - 1])}}
            for subject, numbers in registry.subjects.items()
            for version, number in enumerate(numbers, 1)
        ]
    has_headers = "header.converter" in properties or not any("Avro" in one or "Cloud" in one for one in given.values())
    records = [
        {
            **{key: row[key] for key in ("topic", "partition", "timestamp")},
            **{side: _shown(row[side], properties.get(f"{side}.converter", ""), schemas) for side in ("key", "value")},
            "headers": json.loads(row["headers"]) if has_headers else [],
        }
        for row in table.to_pylist()
    ]
    return [*records, *sorted(found, key=lambda one: json.dumps(one["schema"]))]


_FILE = {
    "database.hostname": "h",
    "database.user": "u",
    "database.dbname": "d",
    "topic.prefix": "fulfillment",
    "errors.tolerance": "all",
}


def _shown(raw: bytes | None, converter: str, schemas: list[Any]) -> Any:
    if raw is None:
        return None
    if converter.endswith("AvroConverter"):
        number = int.from_bytes(raw[1:5], "big")
        read = {"avro": fastavro.schemaless_reader(io.BytesIO(raw[5:]), schemas[number - 1])}
        return json.loads(json.dumps(read, default=lambda one: one.hex() if isinstance(one, bytes) else str(one)))
    if converter.endswith("StringConverter"):
        return raw.decode()
    return json.loads(raw)


def _plain(record: dict[str, Any]) -> str:
    """A record without what no two runs share: clocks, positions, random ids."""
    for header in record.get("headers", []):
        if header["key"] in ("__lsn", "__transaction_id"):
            header["value"] = None
        elif not isinstance(header["value"], str | None) and "schema" not in header["value"]:
            header["value"] = json.dumps(header["value"])
    text = json.dumps(record if "schema" in record else normal(record))
    return _POSITION.sub("#", _UUID.sub("#", _CLOCK.sub("#", text)))
