"""The address of the server: one, or a list of which the primary is wanted."""

import pytest

from cdc_core.config.connector import from_entries
from cdc_core.postgres.connection import connection_string, place


def options(hostname: str):
    entries = {"database.hostname": hostname, "database.port": "5433", "database.user": "u", "database.dbname": "d"}
    return from_entries({**entries, "topic.prefix": "t"}.items()).postgres


@pytest.mark.parametrize(
    ("given", "host", "port", "shown"),
    [
        ("db", "db", "5433", "db:5433"),
        ("db:6000", "db", "6000", "db:6000"),
        ("10.0.0.1", "10.0.0.1", "5433", "10.0.0.1:5433"),
        ("::1", "::1", "5433", "[::1]:5433"),
        ("[::1]", "::1", "5433", "[::1]:5433"),
        ("[::1]:6000", "::1", "6000", "[::1]:6000"),
        ("fe80::1:2", "fe80::1:2", "5433", "[fe80::1:2]:5433"),
        ("/run/pg:x", "/run/pg:x", "5433", "socket /run/pg:x/.s.PGSQL.5433"),
        ("a, b:6000", "a,b", "5433,6000", "a:5433, b:6000"),
        ("[::1]:1,/run", "::1,/run", "1,5433", "[::1]:1, socket /run/.s.PGSQL.5433"),
    ],
)
def test_addresses(given: str, host: str, port: str, shown: str) -> None:
    text = connection_string(options(given)).reveal()
    assert f"host={host} " in text and f"port={port} " in text
    assert ("target_session_attrs=primary" in text) is ("," in given)
    assert place(options(given)) == shown
