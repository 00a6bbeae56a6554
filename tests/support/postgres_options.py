"""PostgresOptions that point at a test's server."""

from __future__ import annotations

from typing import Any

from cdc_core.option import Secret
from cdc_core.postgres.options import PostgresOptions, SslMode
from tests.support.cluster import Cluster
from tests.support.waits import patient


def options_for(cluster: Cluster, database: str, **changes: Any) -> PostgresOptions:
    """Slot and publication bear the database's name. ``changes`` are fields by name.

    A slot in use is waited for: the server's process of a connection that was closed ends when it notices, which takes
    seconds beside other work. A test that wants to be refused asks for no retries.
    """
    fields: dict[str, Any] = {
        "database_hostname": cluster.host,
        "database_port": cluster.port,
        "database_user": cluster.user,
        "database_password": Secret(cluster.password),
        "database_dbname": database,
        "database_sslmode": SslMode.PREFER,
        "slot_name": database,
        "publication_name": database,
        "slot_max_retries": int(patient(200)),
        "slot_retry_delay_ms": 100,
    }
    return PostgresOptions(**{**fields, **changes})
