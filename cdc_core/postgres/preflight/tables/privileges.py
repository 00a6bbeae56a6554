"""Checks whether the role exists, and may connect, replicate, and read every captured table."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, bad, good
from cdc_core.postgres.preflight.statements import (
    allow_login,
    allow_replication,
    bypass_row_security,
    create_role,
    grant_connect,
    grant_select,
    grant_usage,
)
from cdc_core.postgres.replication import partition_names
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.schema import TableId

LOGIN = "role"
ROLE = "replication privilege"
TABLES = "select privilege"

# Managed services grant replication by membership in a role of their own, which rolreplication does not show.
_ROLE_QUERY = """
SELECT one.name, r.rolsuper OR r.rolreplication,
       EXISTS (SELECT FROM pg_roles m WHERE m.rolname IN ('rds_replication', 'cloudsqlsuperuser', 'azure_pg_admin')
               AND pg_has_role(r.rolname, m.oid, 'member')),
       coalesce((SELECT m.rolname FROM pg_roles m WHERE m.rolname = 'rds_replication'), ''),
       r.oid IS NOT NULL, r.rolcanlogin, has_database_privilege(r.oid, current_database(), 'CONNECT')
FROM (SELECT coalesce(%s, current_user::text) AS name) AS one LEFT JOIN pg_roles r ON r.rolname = one.name
"""
_TABLE_QUERY = """
SELECT n.nspname, c.relname, has_schema_privilege(r.oid, n.oid, 'USAGE'), has_table_privilege(r.oid, c.oid, 'SELECT'),
       c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
           AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_roles r ON r.rolname = %s
WHERE c.oid = ANY(%s::oid[]) ORDER BY 1, 2
"""


def check(context: Context) -> list[Finding]:
    """Run the check."""
    with translated("reading privileges"):
        role = one_row(context.connection, _ROLE_QUERY, (context.role,))
        oids = [table.oid for table in context.tables]
        rows = context.connection.execute(_TABLE_QUERY, (role[0], oids)).fetchall()
    # A query of a partitioned table checks no policy of its partitions.
    read = {table.id for table in partition_names.named(context.connection, context.options, context.tables).own}
    return [
        *login_verdicts(role[0], context.options.database_dbname, *role[4:]),
        role_verdict(role[0], role[1], role[2], role[3]),
        *schema_verdicts(role[0], [(TableId(row[0], row[1]), row[2], row[3]) for row in rows]),
        *row_security_verdicts([name for row in rows if row[4] and (name := TableId(row[0], row[1])) in read], role[0]),
    ]


def login_verdicts(role: str, database: str, exists: bool, may_log_in: bool, may_connect: bool) -> list[Finding]:
    """Report what keeps the role from the database, apart from its password and pg_hba.conf."""
    if not exists:
        remedy = "As a superuser run this, and give the role the password that database.password has:"
        return [bad(LOGIN, f'There is no role "{role}".', remedy, create_role(role), grant_connect(database, role))]
    findings = []
    if not may_log_in:
        findings.append(bad(LOGIN, f'Role "{role}" lacks LOGIN.', "As a superuser run:", allow_login(role)))
    if not may_connect:
        grant = grant_connect(database, role)
        text = f'Role "{role}" lacks CONNECT on database "{database}".'
        findings.append(bad(LOGIN, text, "As the database's owner or a superuser run:", grant))
    return findings


def role_verdict(role: str, has_replication: bool, has_service_role: bool, service_role: str = "") -> Finding:
    """``has_service_role``: member of a managed service's replication role; ``service_role``: to become one of."""
    statement = allow_replication(role, service_role)
    if has_replication or has_service_role:
        return good(ROLE, f'Role "{role}" has REPLICATION.', statement)
    return bad(ROLE, f'Role "{role}" lacks REPLICATION.', "As a superuser run:", statement)


def schema_verdicts(role: str, tables: Sequence[tuple[TableId, bool, bool]]) -> list[Finding]:
    """(table, has USAGE on its schema, has SELECT) → at most one finding per kind."""
    closed = sorted({table.schema for table, usage, _ in tables if not usage})
    unreadable = [table for table, _, readable in tables if not readable]
    findings = []
    if closed:
        findings.append(
            bad(
                TABLES,
                f'Role "{role}" lacks USAGE on schema {listed(closed)}.',
                "As the schemas' owner or a superuser run:",
                grant_usage(closed, role),
            )
        )
    if unreadable:
        findings.append(
            bad(
                TABLES,
                f'Role "{role}" lacks SELECT on {listed(unreadable)}.',
                "As the tables' owner or a superuser run:",
                grant_select(unreadable, role),
            )
        )
    if findings:
        return findings
    names = [table for table, _, _ in tables]
    grants = [grant_usage(sorted({name.schema for name in names}), role), grant_select(names, role)] if names else []
    return [good(TABLES, f'Role "{role}" may read all {len(tables)} captured tables.', *grants)]


def row_security_verdicts(tables: Sequence[TableId], role: str) -> list[Finding]:
    """Report tables whose policies apply to this role: the stream has all of their rows, and no snapshot can read them.

    A snapshot reads with ``row_security = off``, which makes the server refuse to read a table whose policies apply.
    """
    if not tables:
        return []
    return [
        bad(
            "row security",
            f"Row-level security applies to this role on {listed(tables)}: the server refuses to read them, because "
            "rows would be hidden.",
            "Make the role the owner of the tables without FORCE ROW LEVEL SECURITY, or as a superuser run:",
            bypass_row_security(role),
        )
    ]
