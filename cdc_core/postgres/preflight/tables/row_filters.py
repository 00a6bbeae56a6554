"""Checks whether the server sends whole rows that an UPDATE makes pass a row filter."""

from __future__ import annotations

from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, doubtful
from cdc_core.postgres.preflight.statements import identity_full
from cdc_core.postgres.sqlstate import translated
from cdc_core.schema import ReplicaIdentity, TableId

NAME = "row filter"

_ROW_FILTERS = 150_000
# Values of other columns are never stored out of line (TOAST), so they are sent with each change.
_LARGE = """
SELECT a.attrelid::bigint, a.attname FROM pg_attribute a
WHERE a.attrelid = ANY(%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped AND a.attlen = -1
  AND a.attstorage IN ('x', 'e')
"""


def check(context: Context) -> list[Finding]:
    """Run the check."""
    if context.connection.info.server_version < _ROW_FILTERS:
        return []
    filtered = {
        table.oid: table
        for table in context.tables
        if table.identity is not ReplicaIdentity.FULL
        and table.fingerprint is not None
        and table.fingerprint.publication is not None
        and any(entry.is_filtered for entry in table.fingerprint.publication.entries)
    }
    if not filtered:
        return []
    with translated("reading how columns are stored"):
        rows = context.connection.execute(_LARGE, (list(filtered),)).fetchall()
    concerned = {filtered[oid].id for oid, name in rows if name not in filtered[oid].identity_key}
    return verdicts(sorted(concerned))


def verdicts(tables: list[TableId]) -> list[Finding]:
    """Report tables with a row filter whose rows may arrive without values that are stored out of line."""
    if not tables:
        return []
    return [
        doubtful(
            NAME,
            f"The publication has a row filter for {listed(tables)}: an UPDATE that makes a row pass it arrives as an "
            "insert without large values that did not change, and the table is re-read each time.",
            "So that the server sends these values, as the tables' owner run:",
            *map(identity_full, tables),
        )
    ]
