"""Checks whether updates and deletes will identify the changed row."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, doubtful, good
from cdc_core.postgres.preflight.statements import identity_full
from cdc_core.schema import ReplicaIdentity, TableSchema, identity_remedy, named_remedy, streamed
from cdc_core.selection import SelectionOptions, plan_columns

NAME = "replica identity"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    return verdicts(context.tables, context.options.plugin_name.has_publication, context.selection)


def verdicts(
    tables: Sequence[TableSchema], has_publication: bool = True, selection: SelectionOptions | None = None
) -> list[Finding]:
    """Report tables whose updates and deletes the server refuses or sends without the old row's key.

    Those that it sends with names of objects in the key are reported, too, unless ``selection`` excludes them. Without
    publications nothing is refused: ``server/output_plugin`` reports these tables.
    """
    without = [
        table.id
        for table in tables
        if table.identity is ReplicaIdentity.NOTHING
        # PostgreSQL does not use a deferrable key as replica identity.
        or (table.identity is ReplicaIdentity.DEFAULT and (not table.primary_key or table.is_key_deferrable))
    ]
    findings = [
        doubtful(
            NAME,
            f"The server does not send {listed(table.unsent_identity)} of the replica identity of {table.id}: its "
            "inserts are captured; the first update or delete pauses the table, or is refused by PostgreSQL 18.",
            identity_remedy(table),
            identity_full(table.id),
        )
        for table in map(streamed, tables)
        if table.unsent_identity
    ]
    findings += [
        doubtful(
            NAME,
            f"Rows of {table.id} are identified by {listed(names)}, of which the server sends names of objects, which "
            "may change: its inserts are captured; the first update or delete pauses the table.",
            named_remedy(table),
        )
        for table in map(streamed, tables)
        if (names := _named(table, selection or SelectionOptions()))
    ]
    if not has_publication:
        return findings
    if not without:
        return findings or [good(NAME, f"All {len(tables)} captured tables have a replica identity.")]
    return [
        *findings,
        doubtful(
            NAME,
            f"Tables without a replica identity: {listed(without)}. Once published, UPDATE and DELETE fail on them.",
            "Add a primary key, or, unless rows are only inserted, as the tables' owner run:",
            *map(identity_full, without),
        ),
    ]


def _named(table: TableSchema, selection: SelectionOptions) -> list[str]:
    captured = {plan.name for plan in plan_columns(table, selection) if plan.included}
    return [name for name in table.named_identity if name in captured]
