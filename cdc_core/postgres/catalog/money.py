"""How many decimals money has in a database: those of the lc_monetary that its users' sessions have.

The server stores money as a whole number, which each session reads by its own lc_monetary; all connections of wal2lake
have C. The database's is that of ALTER DATABASE or ALTER ROLE ALL, else the server's. A setting of the connecting role
alone is not the database's, and neither is one of its environment.
"""

from __future__ import annotations

import psycopg

from cdc_core.errors import SourceError
from cdc_core.postgres.connection import Connection, servers_own
from cdc_core.postgres.sqlstate import one_row, translated

# The server's own setting is the reset value, as no connection gets this one by its startup packet, unless the role has
# another one.
_LOCALE = """
WITH own AS (
    SELECT s.setrole, s.setdatabase, substr(entry, length('lc_monetary=') + 1) AS value
    FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
    WHERE split_part(entry, '=', 1) = 'lc_monetary'
), mine AS (
    SELECT own.value FROM own JOIN pg_roles r ON r.oid = own.setrole AND r.rolname = session_user
    LEFT JOIN pg_database d ON d.oid = own.setdatabase
    WHERE own.setdatabase = 0 OR d.datname = current_database()
), shared AS (
    SELECT own.value FROM own LEFT JOIN pg_database d ON d.oid = own.setdatabase
    WHERE own.setrole = 0 AND (own.setdatabase = 0 OR d.datname = current_database())
    ORDER BY own.setdatabase DESC LIMIT 1
)
SELECT coalesce((SELECT value FROM shared),
                CASE WHEN NOT EXISTS (SELECT FROM mine) THEN
                     (SELECT reset_val FROM pg_settings WHERE name = 'lc_monetary') END),
       session_user::text, current_database()::text
"""


def decimals(connection: Connection) -> int:
    """Return the number of decimals. Raises SourceError or TransientError."""
    with translated("reading the decimals of money"):
        locale, role, database = one_row(connection, _LOCALE.encode())
    if locale is None:
        locale = servers_own(connection, "lc_monetary")
    if locale is None:
        raise SourceError(
            f"The number of decimals of money in database {database} is unknown: role {role} has an lc_monetary of its "
            "own, which hides the server's, and may not open a physical replication connection, which shows it.",
            f"Run ALTER ROLE {role} RESET lc_monetary, or set it for all: ALTER DATABASE {database} SET lc_monetary.",
        )
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT set_config('lc_monetary', %s, true)", (locale,))
            (scale,) = one_row(connection, "SELECT scale(1::money::numeric)")
    except psycopg.errors.InvalidParameterValue:
        raise SourceError(
            f"The number of decimals of money in database {database} is unknown: the server does not have the locale "
            f"{locale}, which is its lc_monetary.",
            f"Install the locale on the server, or set another one: ALTER DATABASE {database} SET lc_monetary.",
        ) from None
    return int(scale)
