"""Options of OpenLineage events, by Debezium's names."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.option import option, parse_list


def parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``name=value`` pairs, separated by commas."""
    pairs = [tuple(part.strip() for part in entry.partition("=")[::2]) for entry in parse_list(text)]
    if not all(name and value for name, value in pairs):
        raise ValueError("name=value pairs, separated by commas")
    return tuple((name, value) for name, value in pairs)


parse_pairs.kind = "list"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class LineageOptions:
    """Options of lineage."""

    openlineage_integration_enabled: bool = option(
        "openlineage.integration.enabled",
        False,
        "Whether snapshots and the stream send OpenLineage events: their start, captured tables with columns and lake "
        "tables, and their end (docs/lineage.md).",
    )
    openlineage_integration_config_file_path: str = option(
        "openlineage.integration.config.file.path",
        "./openlineage.yml",
        "File with the transport of events, as OpenLineage's client for Java reads it: type http, console, file or "
        "composite.",
    )
    openlineage_integration_job_namespace: str = option(
        "openlineage.integration.job.namespace", "", "Namespace of the job; empty: topic.prefix."
    )
    openlineage_integration_job_description: str = option(
        "openlineage.integration.job.description",
        "",
        "Description of the job; empty: Debezium CDC job for topic.prefix.",
    )
    openlineage_integration_job_tags: tuple[tuple[str, str], ...] = option(
        "openlineage.integration.job.tags", (), "Tags of the job: env=prod,team=cdc.", parse=parse_pairs
    )
    openlineage_integration_job_owners: tuple[tuple[str, str], ...] = option(
        "openlineage.integration.job.owners",
        (),
        "Owners of the job and what they are: John Doe=maintainer,Data Team=owner.",
        parse=parse_pairs,
    )
    openlineage_integration_dataset_kafka_bootstrap_servers: str = option(
        "openlineage.integration.dataset.kafka.bootstrap.servers",
        "",
        "Address (host:port) of the Kafka cluster in the names of topics; empty: the first of bootstrap.servers.",
    )
