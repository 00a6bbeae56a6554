"""Texts of libpq and the server, and what they become. No server is asked."""

from __future__ import annotations

import psycopg
import pytest

from cdc_core.errors import (
    CdcError,
    InUseError,
    ServerBusyError,
    SourceError,
    TransientError,
    UnknownHostError,
    UnreachableError,
)
from cdc_core.postgres.sqlstate import connection_error, server_error, translated

PREFIX = 'connection failed: connection to server at "10.0.0.7", port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        (
            f'{PREFIX}FATAL:  password authentication failed for user "u"',
            SourceError,
            'refuses the password of role "u"',
        ),
        (f"{PREFIX}fe_sendauth: no password supplied", SourceError, "refuses the password"),
        (
            f"{PREFIX}Connection refused\n\tIs the server running on that host?",
            UnreachableError,
            "No server is listening at h:1",
        ),
        (
            f'{PREFIX}FATAL:  no pg_hba.conf entry for replication connection from host "10.0.0.9", user "u"',
            SourceError,
            "pg_hba.conf",
        ),
        (f'{PREFIX}FATAL:  database "d" does not exist', SourceError, 'has no database "d"'),
        (f"{PREFIX}FATAL:  sorry, too many clients already", ServerBusyError, "no free connection"),
        (f"{PREFIX}FATAL:  the database system is starting up", ServerBusyError, "starting or stopping"),
        (
            f"{PREFIX}FATAL:  must be superuser or replication role to start walsender",
            SourceError,
            "not permitted to start",
        ),
        (f"{PREFIX}FATAL:  permission denied to start WAL sender", SourceError, "not permitted to start replication"),
        (
            f"{PREFIX}FATAL:  number of requested standby connections exceeds max_wal_senders (currently 2)",
            ServerBusyError,
            "All WAL senders",
        ),
        (f"{PREFIX}server does not support SSL, but SSL was required", SourceError, "does not support TLS"),
        (f"{PREFIX}SSL error: certificate verify failed", SourceError, "is not valid"),
        (
            f'{PREFIX}server certificate for "x" does not match host name "h"',
            SourceError,
            "does not match host name",
        ),
        ("connection timeout expired", UnreachableError, "does not answer"),
        (
            "failed to resolve host 'h': [Errno -2] Name or service not known",
            UnknownHostError,
            "name in h:1 does not exist",
        ),
        (
            "failed to resolve host 'h': [Errno -3] Temporary failure in name resolution",
            UnreachableError,
            "cannot be resolved",
        ),
        (f"{PREFIX}FATAL:  la base de datos no existe", UnreachableError, "la base de datos no existe"),
    ],
)
def test_each_refusal_has_its_sentence(text: str, kind: type[CdcError], found: str) -> None:
    error = connection_error(psycopg.OperationalError(text), "h:1", "u", "d")
    assert type(error) is kind
    assert found in error.message
    assert error.remedy
    assert "\n" not in str(error) and "FATAL" not in str(error)


class _Diagnostic:
    message_primary = "what the server said"
    message_detail = None
    message_hint = None
    source_function = "exec_simple_query"


def _error(state: str) -> psycopg.Error:
    base: type[psycopg.Error] = psycopg.errors.lookup(state)

    class Told(base):  # type: ignore[valid-type, misc]
        diag = _Diagnostic()

    return Told("said")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", UnreachableError),
        ("25006", ServerBusyError),
        ("40001", TransientError),
        ("53100", ServerBusyError),
        ("53300", ServerBusyError),
        ("53400", SourceError),
        ("55006", InUseError),
        ("55P03", TransientError),
        ("57014", TransientError),
        ("57P01", ServerBusyError),
        ("58P01", SourceError),
        ("42501", SourceError),
        ("42704", SourceError),
        ("42P01", SourceError),
        ("22P02", SourceError),
        ("23505", SourceError),
    ],
)
def test_a_sqlstate_decides_whether_a_fault_may_pass_and_data_errors_are_not_quoted(
    state: str, kind: type[CdcError]
) -> None:
    error = server_error(_error(state), "trying something")
    assert type(error) is kind
    assert "trying something" in error.message
    quoted = "what the server said" in error.message
    assert quoted is not state.startswith(("22", "23"))


def test_an_error_without_a_sqlstate_is_a_lost_connection() -> None:
    text = "consuming input failed: server closed the connection unexpectedly\n\tThis probably means"
    with pytest.raises(UnreachableError, match=r"while reading: server closed the connection unexpectedly\. Run"):  # noqa: SIM117
        with translated("reading"):
            raise psycopg.OperationalError(text)
