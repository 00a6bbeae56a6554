"""Checks whether the server has the output plug-in, and says what it does not send."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.errors import CdcError, TransientError
from cdc_core.postgres.connect import connect
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.preflight.statements import identity_full
from cdc_core.postgres.replication import plugin, slot
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import TableSchema

NAME = "output plug-in"

# The plug-in is loaded before the server waits for open transactions, so that the time decides nothing.
_SECONDS = 2.0
# float4, float8, numeric.
_SPECIAL = (700, 701, 1700)


def check(context: Context) -> list[Finding]:
    """Run the check; of pgoutput, which is part of the server, only what leaves changes out is of interest."""
    options = context.options
    if options.plugin_name.has_publication:
        return _filters(options)
    return [_installed(context), *limits(options, context.tables), *_filters(options)]


def _filters(options: PostgresOptions) -> list[Finding]:
    names = plugin.filters(options)
    if not names:
        return []
    return [
        doubtful(
            NAME,
            f"The server leaves changes out because of {listed(names)} in slot.stream.params and cannot say which, "
            "so that lake tables may differ from their sources.",
            "Remove them, and exclude tables from the capture by table.*.list.",
        )
    ]


def _installed(context: Context) -> Finding:
    """Make a temporary slot, which ends with its connection: only this loads a plug-in for every role."""
    name = context.options.plugin_name.on_server
    if slot.inspect(context.connection, context.options.slot_name).plugin == name:
        return good(NAME, f"Slot {context.options.slot_name} uses {name}.")
    try:
        with connect(context.options, replication=True) as replication:
            slot.create(
                replication,
                f"wal2lake_check_{context.connection.info.backend_pid}",
                name,
                temporary=True,
                seconds=_SECONDS,
            )
    except TransientError:
        pass  # It waited for open transactions.
    except CdcError as error:
        return bad(NAME, error.message, error.remedy)
    return good(NAME, f"The server has {name}.")


def limits(options: PostgresOptions, tables: Sequence[TableSchema]) -> list[Finding]:
    """Return what the plug-in does not send, as far as it concerns these tables."""
    name = options.plugin_name.on_server
    found = [_identities(name, tables)]
    if not plugin.sends_truncates(options):
        found.append(
            doubtful(
                NAME,
                f"{name} does not send TRUNCATE: a table that was truncated is read again, also after VACUUM FULL and "
                "CLUSTER; events do not have truncates.",
                "Use pgoutput, or wal2json with format-version=2, if tables are truncated often.",
            )
        )
    if name == OutputPlugin.DECODERBUFS:
        found.append(
            doubtful(NAME, "decoderbufs does not send logical messages.", "Use pgoutput if they are captured.")
        )
    special = [
        f"{table.id}.{column.name}" for table in tables for column in table.columns if column.type.oid in _SPECIAL
    ]
    if (
        name == OutputPlugin.WAL2JSON
        and special
        and "numeric-data-types-as-string" not in dict(options.slot_stream_params)
    ):
        found.append(
            doubtful(
                NAME,
                f"wal2json sends NaN and infinity as null in columns of type real, double precision and numeric: "
                f"{listed(special)}.",
                "Use pgoutput or decoderbufs if such values occur, or set "
                "slot.stream.params=numeric-data-types-as-string=1 (wal2json 2.6).",
            )
        )
    return [each for each in found if each is not None]


def _identities(name: str, tables: Sequence[TableSchema]) -> Finding | None:
    without = [
        table.id
        for table in tables
        if table.identity is ReplicaIdentity.NOTHING
        or (table.identity is ReplicaIdentity.DEFAULT and (not table.primary_key or table.is_key_deferrable))
    ]
    if not without:
        return None
    return doubtful(
        NAME,
        f"{name} does not send which rows of {listed(without)} are updated or deleted, and the server does not refuse "
        "to change them, because no publication has them.",
        "Unless rows are only inserted, as the tables' owner run:",
        *map(identity_full, without),
    )
