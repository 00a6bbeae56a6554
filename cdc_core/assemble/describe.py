"""A captured table and its lake table as programs outside show them, with the connector's options."""

from __future__ import annotations

from cdc_core.assemble.context import RunContext
from cdc_core.described import DescribedTable, DescribedTopic, described
from cdc_core.lake import lake_schema
from cdc_core.schema import TableSchema


def describe(context: RunContext, table: TableSchema) -> DescribedTable:
    """Describe a captured table, and its lake table as a snapshot would make it; without a lake, only the first."""
    if not any(destination.has_tables for destination in context.destinations):
        return described(table, (), {}, "")
    lake, plan = context.lake, context.plan
    fields = lake_schema(plan.typer(table).row_type, lake.options.delete_modes.of(table.id))
    return described(table, fields, plan.treatments(table), str(lake.paths.lake(table.id)))


def described_topic(context: RunContext, table: TableSchema) -> DescribedTopic | None:
    """Describe the topic of a table's events. None without Kafka, and with transforms, which may change topics."""
    config = context.config
    if "kafka" not in config.engine.sinks or config.transforms.transforms:
        return None
    from cdc_core.assemble.events import envelope_context
    from cdc_core.events import TableRows, producer_settings

    records = envelope_context(context, None)
    rows = TableRows(config.postgres, records, config.types, config.selection, config.snapshot)
    events = rows.change_events(table)
    first, _, _ = producer_settings(config.kafka)["bootstrap.servers"].partition(",")
    brokers = config.lineage.openlineage_integration_dataset_kafka_bootstrap_servers or first.strip()
    return DescribedTopic(brokers, events.topic, events.value_schema)
