"""Begins a transaction that reads one snapshot, and returns which transactions the snapshot shows.

On a standby ``pg_current_snapshot()`` does not list the transactions that run: PostgreSQL keeps them elsewhere in the
snapshot there, so each of them would look as if it were shown as soon as a later one has ended. They are found by
``pg_xact_status``, once before the snapshot is taken and once after. If none has ended in between, they are the ones
that the snapshot does not show.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from cdc_core.errors import TransientError
from cdc_core.postgres.connection import Connection
from cdc_core.postgres.settings import require_own
from cdc_core.postgres.sqlstate import one_row
from cdc_core.visibility import Visibility

BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_HAS_XID8 = 130_000
_SECONDS = 30.0

# The ids of running transactions, subtransactions included, among the known ids and those from another id on.
_RUNNING = """
SELECT pg_current_snapshot()::text, array(
    SELECT id FROM (
        SELECT unnest(%s::bigint[])
        UNION ALL SELECT generate_series(%s::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)
    ) AS known(id)
    WHERE pg_xact_status(id::text::xid8) = 'in progress' ORDER BY id)
"""


def begin_reading(connection: Connection) -> str:
    """Begin a transaction, REPEATABLE READ and READ ONLY; return the text of its ``pg_snapshot``.

    Raises psycopg.Error, and TransientError if transactions end on a standby faster than they can be queried.
    """
    connection.execute(BEGIN)
    require_own(connection)
    visible, is_standby = _current(connection)
    visibility = Visibility.parse(visible)
    if not is_standby or visibility.xmin == visibility.xmax:
        return visible
    connection.execute("ROLLBACK")
    return _begun_on_standby(connection, visibility.xmin)


def current_snapshot(connection: Connection) -> str:
    """Return the text of the present transaction's ``pg_snapshot``, if a primary made it. Raises psycopg.Error."""
    return _current(connection)[0]


def _current(connection: Connection) -> tuple[str, bool]:
    call = "pg_current_snapshot()" if connection.info.server_version >= _HAS_XID8 else "txid_current_snapshot()"
    row = one_row(connection, f"SELECT {call}::text, pg_is_in_recovery()".encode())
    return str(row[0]), bool(row[1])


def _begun_on_standby(connection: Connection, xmin: int) -> str:
    """As ``begin_reading``. Transactions with an id before ``xmin`` have ended."""
    deadline, known, first = time.monotonic() + _SECONDS, list[int](), xmin
    while True:
        # The first query is for all ids from xmin on, which may be many; later ones are for those that ran then.
        before, known = _running(connection, known, first)
        first = before.xmax
        connection.execute(BEGIN)
        visibility, running = _running(connection, known, first)
        if visibility.xmax == before.xmax and running == known:
            return f"{visibility.xmin}:{visibility.xmax}:{','.join(map(str, running))}"
        connection.execute("ROLLBACK")
        if time.monotonic() > deadline:
            raise TransientError(
                f"No snapshot of the standby could be described within {_SECONDS:g} s, because transactions ended "
                "while it was taken.",
                "It is tried again; a shorter way to the server makes it more likely.",
            )


def _running(connection: Connection, known: Sequence[int], first: int) -> tuple[Visibility, list[int]]:
    """Return a snapshot taken now, and which of the ``known`` ids and of those from ``first`` to its xmax run."""
    row = one_row(connection, _RUNNING, (list(known), first))
    return Visibility.parse(row[0]), list(row[1])
