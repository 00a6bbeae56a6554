"""All checks, in the order in which problems are best corrected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from cdc_core.errors import CdcError
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import Connection, connect, connect_as, place
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.postgres.preflight.script import ADMINISTRATOR, CONNECTION, REPLICATION
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
from cdc_core.schema import TableId
from cdc_core.selection import SelectionOptions

_ADMINISTRATOR_REMEDY = "Correct --as, or PGUSER, PGPASSWORD and the password file where it names no user or password."
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
    administrator: str | None = None,
) -> list[Finding]:
    """Check the server and return findings; changes nothing and raises no CdcError.

    ``includes`` selects the captured tables, ``selection`` contains the lists that it applies, ``more`` are further
    checks. Without a connection, that is the only finding. A replication connection is tried too: errors of pg_hba.conf
    and max_wal_senders occur only there. ``administrator``: the connection of another role, which asks the server where
    the role of ``options`` cannot connect.
    """
    try:
        connection = _connected(options)
    except CdcError as error:
        refused = bad(CONNECTION, error.message, error.remedy)
        if administrator is None:
            return [refused]
        return _asked_by(administrator, options, includes, selection, more, refused)
    with connection:
        try:
            context = _context(connection, options, includes, selection)
            findings = [good(CONNECTION, f"Connected to {place(options)} as {options.database_user}.")]
            for check in (*CHECKS, *more):
                findings += check(context)
        except CdcError as error:
            return [bad("catalogue", error.message, error.remedy)]
    return [*findings, _replication(options)]


def _asked_by(
    administrator: str,
    options: PostgresOptions,
    includes: Callable[[TableId], bool],
    selection: SelectionOptions | None,
    more: Sequence[Check],
    refused: Finding,
) -> list[Finding]:
    """Return what an administrator's connection shows, where the role's own is ``refused``."""
    try:
        connection = connect_as(administrator, options)
    except CdcError as error:
        return [refused, bad(ADMINISTRATOR, error.message, _ADMINISTRATOR_REMEDY)]
    with connection:
        try:
            context = _context(connection, options, includes, selection, options.database_user)
            findings = [finding for check in (*CHECKS, *more) for finding in check(context)]
        except CdcError as error:
            return [refused, bad(ADMINISTRATOR, error.message, error.remedy)]
        asked = good(ADMINISTRATOR, f"Connected to {place(options)} as {connection.info.user}.")
    is_explained = any(finding.check == privileges.LOGIN for finding in findings)
    own = [] if is_explained else [replace(refused, check=privileges.LOGIN)]
    return [asked, *own, *findings]


def _context(
    connection: Connection,
    options: PostgresOptions,
    includes: Callable[[TableId], bool],
    selection: SelectionOptions | None,
    role: str | None = None,
) -> Context:
    catalog = Catalog(connection, options.publication_name, plugin.sent(options))
    return Context(
        connection,
        options,
        server_info(connection),
        catalog.names(),
        catalog.no_tables(),
        catalog.tables(includes),
        selection or SelectionOptions(),
        role,
    )


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
