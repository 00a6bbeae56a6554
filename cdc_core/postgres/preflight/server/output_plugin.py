"""Checks whether the server has the output plug-in, and reports which changes it does not send."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.errors import CdcError, PluginError, TransientError
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.preflight.statements import identity_full
from cdc_core.postgres.replication import plugin, plugin_library, slot
from cdc_core.schema import ReplicaIdentity, TableSchema

NAME = "output plug-in"

# The plug-in is loaded before the server waits for open transactions, so that the time decides nothing.
_SECONDS = 2.0


def check(context: Context) -> list[Finding]:
    """Run the check; of pgoutput, which is part of the server, only whether it is allowed and what it leaves out."""
    options = context.options
    if options.plugin_name.has_publication:
        return [*_loaded(context), *_filters(options)]
    return [*_loaded(context), *limits(options, context.tables), *_filters(options)]


def _filters(options: PostgresOptions) -> list[Finding]:
    names = plugin.filters(options)
    if not names:
        return []
    return [
        doubtful(
            NAME,
            f"The server leaves changes out because of {listed(names)} in slot.stream.params and does not name them, "
            "so that lake tables may differ from their sources.",
            "Remove them, and exclude tables from the capture by table.*.list.",
        )
    ]


def _loaded(context: Context) -> list[Finding]:
    name, of_server = context.options.plugin_name.on_server, context.options.plugin_name.has_publication
    if of_server and not plugin_library.is_limited(context.connection):
        return []
    setting = plugin_library.allowed(context.connection)
    if of_server and setting.allows(name):
        return []
    if context.role is not None and setting.value is not None and not setting.allows(name):
        return [bad(NAME, setting.refusal(name), setting.remedy(name), *setting.statements(name))]
    if context.role is None and context.server.wal_level == "logical":
        return _tried(context, name)
    if of_server or setting.allows(name) or not plugin_library.is_limited(context.connection):
        return []
    unknown = f"Whether the server allows output plug-in {name} can be tried by the role, when wal_level is logical."
    return [doubtful(NAME, unknown, setting.remedy(name), *setting.statements(name))]


def _tried(context: Context, name: str) -> list[Finding]:
    """Make a temporary slot, which ends with its connection: only this loads a plug-in for every role.

    An existing slot of this plug-in is no proof: the plug-in may have been removed or forbidden since.
    """
    try:
        replication = connect(context.options, replication=True)
    except CdcError:
        return []  # The check of the replication connection reports the cause.
    with replication:
        try:
            trial = f"wal2lake_check_{context.connection.info.backend_pid}"
            slot.create(replication, trial, name, temporary=True, seconds=_SECONDS)
        except PluginError as error:
            return [bad(NAME, error.message, error.advice, *error.statements)]
        except TransientError:
            pass  # It waited for open transactions.
        except CdcError as error:
            unknown = f"Whether the server loads output plug-in {name} could not be tried. {error.message}"
            return [doubtful(NAME, unknown, error.remedy)]
    return [good(NAME, f"The server loads {name}.")]


def limits(options: PostgresOptions, tables: Sequence[TableSchema]) -> list[Finding]:
    """Return what the plug-in does not send, as far as it concerns these tables."""
    name = options.plugin_name.on_server
    findings = [_identities(name, tables)]
    if not plugin.sends_truncates(options):
        findings.append(
            doubtful(
                NAME,
                f"{name} does not send TRUNCATE: a table that was truncated is read again, also after VACUUM FULL and "
                "CLUSTER; events do not have truncates.",
                "Use pgoutput, or wal2json with format-version=2, if tables are truncated often.",
            )
        )
    if name == OutputPlugin.DECODERBUFS:
        findings.append(
            doubtful(NAME, "decoderbufs does not send logical messages.", "Use pgoutput if they are captured.")
        )
    return [finding for finding in findings if finding is not None]


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
