"""A script for psql that prepares a server for a connector, from the findings of the checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from psycopg import sql

from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.postgres.preflight import statements
from cdc_core.postgres.preflight.finding import Finding
from cdc_core.postgres.replication import plugin_library
from cdc_core.schema import TableId
from cdc_core.selection import SelectionOptions

CONNECTION = "connection"
REPLICATION = "replication connection"
ADMINISTRATOR = "administrator's connection"
# Entries of table.include.list that are names, with or without an escaped dot.
_PLAIN = re.compile(r"(\w+)\\?\.(\w+)")


def script(
    options: PostgresOptions, selection: SelectionOptions, findings: Sequence[Finding], *, everything: bool = False
) -> str:
    """Return the script: comments, and the statements of findings that are not good.

    With ``everything`` also those of good findings, as comments. If the server cannot be queried, it creates the role
    and grants what the connector file names.
    """
    lines = [
        f"-- Prepares database {_quoted(options.database_dbname)} for role {_quoted(options.database_user)}.",
        "-- Run it with psql in that database, as a superuser or as the roles named below.",
    ]
    refused = [finding for finding in findings if finding.check in (CONNECTION, ADMINISTRATOR) and not finding.ok]
    lines += _unreached(options, selection, refused) if is_unreached(findings) else _found(findings, everything)
    return "\n".join(lines) + "\n"


def is_unreached(findings: Sequence[Finding]) -> bool:
    """Whether there was no connection, so that nothing else is known of the server."""
    return any(finding.check == CONNECTION and not finding.ok for finding in findings)


def uncorrected(findings: Sequence[Finding]) -> list[Finding]:
    """Return the errors that no statement of the script corrects.

    A refused replication connection is a consequence of the other findings, if there are any.
    """
    failed = [finding for finding in findings if not finding.ok and finding.is_error]
    if is_unreached(failed):
        return []
    others = [finding for finding in failed if finding.check != REPLICATION]
    return [finding for finding in others or failed if not finding.sql]


def left_out(selection: SelectionOptions) -> list[str]:
    """Return the properties that select tables by patterns: without the server, the script cannot resolve them."""
    lists = (
        ("table.include.list", [one for one in selection.table_include_list if not _PLAIN.fullmatch(one)]),
        ("table.exclude.list", selection.table_exclude_list),
        ("schema.include.list", () if selection.table_include_list else selection.schema_include_list),
        ("schema.exclude.list", () if selection.table_include_list else selection.schema_exclude_list),
    )
    found = [f"{name}={','.join(entries)}" for name, entries in lists if entries]
    return found or ([] if selection.table_include_list else ["every table, as no list names any"])


def _found(findings: Sequence[Finding], everything: bool) -> Iterator[str]:
    done: set[str] = set()
    missing = [finding for finding in findings if not finding.ok]
    for finding in missing:
        statements_left = [left for left in finding.sql if left not in done]
        done.update(statements_left)
        yield from ("", *_comment(f"{finding.check}: {finding.found}"), *_comment(finding.remedy), *statements_left)
    if not missing:
        yield from ("", "-- Nothing is missing.")
    for finding in findings if everything else ():
        if finding.ok and finding.sql:
            yield from ("", *_comment(f"{finding.check}: {finding.found} It was made so by:"))
            yield from (line for statement in finding.sql for line in _comment(statement))


def _unreached(options: PostgresOptions, selection: SelectionOptions, refused: Sequence[Finding]) -> Iterator[str]:
    role, database = options.database_user, options.database_dbname
    for problem in refused:
        yield from ("", *_comment(f"{problem.check}: {problem.found}"), *_comment(problem.remedy))
    yield from (
        "-- The server could not be queried: this is for a server on which nothing is prepared. Then check again.",
        "",
        "-- wal_level must be logical. Restart the server if it was not; of a managed service, change its parameter.",
        statements.setting("wal_level", "logical"),
        "",
        *_plugin(options),
        *_comment(f"The role. Then give it the password that database.password has: \\password {_quoted(role)}"),
        f"DO $wal2lake$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {_literal(role)}) "
        f"THEN {statements.create_role(role)} END IF; END $wal2lake$;",
        statements.allow_replication(role),
        statements.grant_connect(database, role),
    )
    entries = selection.table_include_list
    named = [TableId(*match.groups()) for entry in entries if (match := _PLAIN.fullmatch(entry))]
    for missing in left_out(selection):
        yield from (
            "",
            *_comment(f"LEFT OUT, as the server could not be queried for these tables: {missing}."),
        )
    if left_out(selection):
        yield "-- With their grants and the publication: wal2lake check --sql --as CONNECTION (an administrator's)."
    if not named:
        return
    yield from ("", "-- The tables that table.include.list names.")
    yield statements.grant_usage(sorted({table.schema for table in named}), role)
    yield statements.grant_select(named, role)
    if options.plugin_name is OutputPlugin.PGOUTPUT and not left_out(selection):
        via_root = options.publish_via_partition_root
        yield statements.create_publication(options.publication_name, named, via_root=via_root)


def _plugin(options: PostgresOptions) -> list[str]:
    name = options.plugin_name.on_server
    if options.plugin_name.has_publication:
        return []
    why = (
        f"-- From the minor versions of November 2026 on, servers load only the output plug-ins of a list: add {name}."
    )
    return [why, *plugin_library.allow(name), ""]


def _comment(text: str) -> list[str]:
    return [f"-- {line}" for line in text.splitlines()]


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


def _literal(text: str) -> str:
    return sql.Literal(text).as_string()
