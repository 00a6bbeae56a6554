"""heartbeat.action.query: a statement of the user, run again and again while changes are streamed.

It makes a quiet database write WAL (or change a table that is captured), so that the slot's position follows the end of
the server's WAL also if every other change is made in other databases of the server.
"""

from __future__ import annotations

import logging
import time

import psycopg

from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import PostgresOptions
from cdc_core.postgres.settings import use_roles_settings
from cdc_core.postgres.sqlstate import server_error

_log = logging.getLogger(__name__)


class HeartbeatAction:
    """Runs the statement at once, and again after heartbeat.interval.ms; never if one of both is not set.

    A statement that the server refuses is no reason to stop, as in Debezium: the log names the reason once, and it is
    tried again. For one thread.
    """

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self._is_set = bool(options.heartbeat_interval_ms and options.heartbeat_action_query)
        self._due = time.monotonic()
        self._refusal = ""

    def run_if_due(self) -> None:
        """Run the query on a new connection. Raises SourceError or TransientError if there is no connection."""
        if not self._is_set or time.monotonic() < self._due:
            return
        with connect(self._options) as connection:
            try:
                use_roles_settings(connection)
                connection.execute(self._options.heartbeat_action_query.encode())
                self._refusal = ""
            except psycopg.Error as error:
                self._note(server_error(error, "running heartbeat.action.query").message)
        self._due = time.monotonic() + self._options.heartbeat_interval_ms / 1000

    def _note(self, refusal: str) -> None:
        if refusal != self._refusal:
            _log.error("%s It is tried again each heartbeat.interval.ms.", refusal)
        self._refusal = refusal
