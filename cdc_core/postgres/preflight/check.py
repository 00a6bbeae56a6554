"""All checks, in the order in which problems are best corrected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_core.errors import CdcError
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connect import Connection, connect, place
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.postgres.preflight.script import CONNECTION, REPLICATION
from cdc_core.postgres.preflight.server import (
    encoding,
    heartbeat_query,
    known_faults,
    output_plugin,
    replication_slots,
    sender_timeout,
    server_version,
    slot_ready,
    wal_level,
    wal_senders,
)
from cdc_core.postgres.preflight.tables import (
    amounts,
    generated_columns,
    identities,
    include_list,
    numerics,
    privileges,
    publication_ready,
    row_filters,
)
from cdc_core.postgres.replication import plugin
from cdc_core.postgres.server import server_info
from cdc_core.postgres.settings import is_pooled
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions

Check = Callable[[Context], list[Finding]]
CHECKS: tuple[Check, ...] = (
    server_version.check,
    encoding.check,
    wal_level.check,
    wal_senders.check,
    replication_slots.check,
    sender_timeout.check,
    output_plugin.check,
    known_faults.check,
    include_list.check,
    privileges.check,
    identities.check,
    generated_columns.check,
    numerics.check,
    amounts.check,
    publication_ready.check,
    row_filters.check,
    slot_ready.check,
    heartbeat_query.check,
)


def run_checks(
    options: PostgresOptions,
    includes: Callable[[TableId], bool],
    selection: SelectionOptions | None = None,
    more: Sequence[Check] = (),
) -> list[Finding]:
    """Check the server and return findings; changes nothing and raises no CdcError.

    ``includes`` selects the captured tables, ``selection`` contains the lists that it applies, ``more`` are further
    checks. Without a connection, that is the only finding. A replication connection is tried too: errors of pg_hba.conf
    and max_wal_senders occur only there.
    """
    try:
        connection = _connected(options)
    except CdcError as error:
        return [bad(CONNECTION, error.message, error.remedy)]
    with connection:
        try:
            catalog = Catalog(connection, options.publication_name, plugin.sent(options))
            context = Context(
                connection,
                options,
                server_info(connection),
                catalog.names(),
                catalog.no_tables(),
                catalog.tables(includes),
                selection or SelectionOptions(),
            )
            findings = [good(CONNECTION, f"Connected to {place(options)} as {options.database_user}.")]
            for check in (*CHECKS, *more):
                findings += check(context)
        except CdcError as error:
            return [bad("catalogue", error.message, error.remedy)]
    return [*findings, _replication(options)]


def _connected(options: PostgresOptions) -> Connection:
    connection = connect(options)
    if is_pooled(connection):
        # As in a run, a second connection shows whether the pooler gives both the same session.
        try:
            connect(options).close()
        except CdcError:
            connection.close()
            raise
    return connection


def _replication(options: PostgresOptions) -> Finding:
    try:
        connect(options, replication=True).close()
    except CdcError as error:
        return bad(REPLICATION, error.message, error.remedy)
    return good(REPLICATION, "A replication connection is accepted.")
