"""Events of OpenLineage: whether they conform to its schemas, and what two producers' events have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from referencing import Registry, Resource

DATA = Path(__file__).parents[1] / "data" / "openlineage"


def recorded(name: str) -> list[dict[str, Any]]:
    """The events that Debezium's connector sent."""
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


@cache
def _schemas() -> Registry:
    documents = [json.loads(path.read_text()) for path in (DATA / "spec").glob("*.json")]
    return Registry().with_resources([(each["$id"], Resource.from_contents(each)) for each in documents])


def wrong(event: Mapping[str, Any]) -> list[str]:
    """What OpenLineage's schemas have against an event and its facets."""
    schemas, registry = {}, _schemas()
    for address in registry:
        schemas[address.rpartition("/")[2].removesuffix(".json")] = address
    found = _errors(event, f"{schemas['OpenLineage']}#/$defs/RunEvent")
    for name, facet in facets(event):
        kind = facet["_schemaURL"].rpartition("/")[2]
        if kind in schemas:
            found += [f"{name}: {each}" for each in _errors(facet, f"{schemas[kind]}#/$defs/{kind}")]
        elif name not in ("debezium_config", "wal2lake_progress"):
            found.append(f"{name}: its schema {facet['_schemaURL']} is not known")
    return found


def facets(event: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every facet of an event, with its name."""
    parts = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for part in parts:
        yield from part.get("facets", {}).items()
        yield from part.get("outputFacets", {}).items()


def _errors(instance: Any, reference: str) -> list[str]:
    validator = jsonschema.Draft202012Validator({"$ref": reference}, registry=_schemas())
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(instance)]


def common(event: Mapping[str, Any], differs: Mapping[str, str]) -> dict[str, Any]:
    """An event without what differs between two runs and two producers.

    ``differs`` are texts that are replaced: the port, the database. Outputs are set aside: Debezium's connector names
    its topics by a transform of Kafka Connect.
    """
    text = json.dumps(event, sort_keys=True)
    for before, after in differs.items():
        text = text.replace(before, after)
    plain: dict[str, Any] = json.loads(text)
    for _, facet in facets(plain):
        facet.pop("_producer")
    run = plain["run"]["facets"]
    run["debezium_config"].pop("additionalProperties", None)
    run["debezium_config"]["configs"] = sorted(run["debezium_config"]["configs"])
    engine = run["processing_engine"]
    engine["name"], engine["version"], engine["openlineageAdapterVersion"] = "", "", ""
    plain["job"]["facets"]["jobType"]["integration"] = ""
    for part, name in (("tags", "tags"), ("ownership", "owners")):
        plain["job"]["facets"][part][name].sort(key=json.dumps)
    run.pop("wal2lake_progress", None)
    for name in ("eventTime", "producer", "outputs"):
        plain.pop(name)
    plain["run"].pop("runId")
    return plain


def distinct(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The events in their order, without those that are equal to the one before."""
    return [event for before, event in zip([None, *events], events, strict=False) if event != before]
