"""PostgresOptions that point at a test's server."""

from __future__ import annotations

from typing import Any

from cdc_core.option import Secret
from cdc_core.postgres.options import PostgresOptions, SslMode
from tests.support.cluster import Cluster


def options_for(cluster: Cluster, database: str, **changes: Any) -> PostgresOptions:
    """Slot and publication bear the database's name; retries are few and quick. ``changes`` are fields by name."""
    fields: dict[str, Any] = {
        "database_hostname": cluster.host,
        "database_port": cluster.port,
        "database_user": cluster.user,
        "database_password": Secret(cluster.password),
        "database_dbname": database,
        "database_sslmode": SslMode.PREFER,
        "slot_name": database,
        "publication_name": database,
        "slot_max_retries": 0,
        "slot_retry_delay_ms": 100,
    }
    return PostgresOptions(**{**fields, **changes})
