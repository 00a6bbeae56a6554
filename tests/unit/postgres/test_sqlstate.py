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
from cdc_core.postgres.refusal import Refusal
from cdc_core.postgres.sqlstate import connection_error, server_error, translated

PREFIX = 'connection failed: connection to server at "10.0.0.7", port 5432 failed: '


@pytest.mark.parametrize(
    ("text", "kind", "found"),
    [
        (f"{PREFIX}fe_sendauth: no password supplied", SourceError, "refuses the password"),
        (
            f"{PREFIX}Connection refused\n\tIs the server running on that host?",
            UnreachableError,
            "No server is listening at h:1",
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
        (
            'connection to server at "certificate.example", port 1 failed: Connection reset by peer',
            UnreachableError,
            "Cannot connect to h:1: Connection reset by peer",
        ),
    ],
)
def test_each_failure_of_libpq_has_its_sentence(text: str, kind: type[CdcError], found: str) -> None:
    told(connection_error(psycopg.OperationalError(text), "h:1", "u", "d"), kind, found)


@pytest.mark.parametrize(
    ("refused", "text", "kind", "found"),
    [
        (Refusal("28P01", "auth_failed"), "password", SourceError, 'refuses the password of role "u"'),
        (Refusal("28000", "auth_failed"), "peer", SourceError, 'refuses role "u": peer'),
        (Refusal("28000", "ClientAuthentication"), "X pg_hba.conf Y", SourceError, "from this host without TLS"),
        (Refusal("28000", "ClientAuthentication", True), "X pg_hba.conf Y", SourceError, "from this host."),
        (Refusal("28000", "ClientAuthentication", True), "cert", SourceError, "requires a client certificate"),
        (Refusal("28000", "InitializeSessionUserId"), "login", SourceError, 'does not let role "u" log in: login'),
        (Refusal("3D000", "InitPostgres"), "certificate", SourceError, 'has no database "d"'),
        (Refusal("42501", "InitPostgres"), "timed out", SourceError, "not permitted to start replication"),
        (Refusal("42501", "CheckMyDatabase"), "no", SourceError, "not permitted to connect to database"),
        (Refusal("53300", "InitProcess"), "max_wal_senders", ServerBusyError, "All WAL senders"),
        (Refusal("53300", "InitProcess"), "many", ServerBusyError, "no free connection"),
        (Refusal("57P03", "ProcessStartupPacket"), "starts", ServerBusyError, "starting or stopping"),
        (Refusal("55000", "CheckMyDatabase"), "no", SourceError, "refuses the connection: no"),
        (Refusal("08P01"), "pooler", UnreachableError, "refuses the connection: pooler"),
        (Refusal(), "who knows", UnreachableError, "refuses the connection: who knows"),
    ],
)
def test_a_refusal_of_the_server_is_recognized_in_any_language(
    refused: Refusal, text: str, kind: type[CdcError], found: str
) -> None:
    for severity in ("FATAL", "\u0412\u0410\u0416\u041d\u041e", "\u81f4\u547d\u7684\u30a8\u30e9\u30fc"):
        error = psycopg.OperationalError(f"{PREFIX}{severity}:  {text}")
        told(connection_error(error, "h:1", "u", "d", refused), kind, found)
        assert severity not in str(connection_error(error, "h:1", "u", "d", refused))


def told(error: CdcError, kind: type[CdcError], found: str) -> None:
    assert type(error) is kind
    assert found in error.message
    assert error.remedy
    assert "\n" not in str(error)


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
