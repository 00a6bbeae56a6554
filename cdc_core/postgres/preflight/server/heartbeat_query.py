"""Checks whether the server would run heartbeat.action.query, without running it."""

from __future__ import annotations

import psycopg

from cdc_core.postgres.preflight.context import Context
from cdc_core.postgres.preflight.finding import Finding, doubtful, good
from cdc_core.postgres.settings import ROLES_PATH
from cdc_core.postgres.sqlstate import server_error

NAME = "heartbeat query"
# States of missing objects and privileges. EXPLAIN has other errors: it refuses CALL, and several statements.
_MISSING = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedTable,
)


def check(context: Context) -> list[Finding]:
    """Run the check, unless the connection is an administrator's, whose privileges are not those of the role."""
    query = context.options.heartbeat_action_query
    if not query or not context.options.heartbeat_interval_ms or context.role is not None:
        return []
    try:
        with context.connection.transaction(force_rollback=True):
            context.connection.execute(ROLES_PATH)
            # Prepared: the server takes one statement only, so that nothing is run after the one that is explained.
            context.connection.execute(b"EXPLAIN " + query.encode(), prepare=True)
    except _MISSING as error:
        message = server_error(error, "planning heartbeat.action.query").message
        return [
            doubtful(
                NAME,
                message,
                "Correct the query, or grant the privileges that it needs: a run logs the error and continues.",
            )
        ]
    except psycopg.Error:
        return []
    return [good(NAME, "The server can run heartbeat.action.query.")]
