"""TLS: a server with its own certificate authority, every sslmode, client certificates, and what each refusal says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from cdc_core.errors import SourceError
from cdc_core.option import Secret
from cdc_core.postgres.connection import connect
from cdc_core.postgres.options import PostgresOptions, SslMode
from tests.support.cluster import Cluster, binaries
from tests.support.postgres_options import options_for

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

HBA = """
local   all all               trust
hostssl all by_certificate    127.0.0.1/32 cert
hostssl all all               127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class Certified:
    """A server that only speaks TLS with clients on the loopback's address, and the files of its authority."""

    cluster: Cluster
    folder: Path
    authority: trustme.CA
    database: str

    @property
    def root(self) -> str:
        """The file of the authority's certificate."""
        return str(self.folder / "root.crt")

    def options(self, **changes: Any) -> PostgresOptions:
        """Options for the server by its address, with its authority."""
        found = options_for(self.cluster, self.database, database_sslrootcert=self.root)
        return replace(found, **changes)

    def serve(self, *names: str, authority: trustme.CA | None = None, **when: Any) -> None:
        """Let the server present a certificate for these names."""
        made = (authority or self.authority).issue_cert(*names, **when)
        _write(self.cluster.data / "server.crt", *(blob.bytes() for blob in made.cert_chain_pems))
        _write(self.cluster.data / "server.key", made.private_key_pem.bytes(), like=self.cluster.data)
        self.cluster.execute("postgres", "select pg_reload_conf()")

    def client(self, name: str, authority: trustme.CA | None = None, **when: Any) -> dict[str, str]:
        """A client's certificate and key, as fields of the options."""
        made = (authority or self.authority).issue_cert(common_name=name, **when)
        _write(self.folder / f"{name}.crt", *(blob.bytes() for blob in made.cert_chain_pems))
        _write(self.folder / f"{name}.key", made.private_key_pem.bytes())
        return {
            "database_sslcert": str(self.folder / f"{name}.crt"),
            "database_sslkey": str(self.folder / f"{name}.key"),
        }


def _write(path: Path, *parts: bytes, like: Path | None = None) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(b"".join(parts))
    path.chmod(0o600 if path.suffix == ".key" else 0o644)
    if like is not None and os.geteuid() == 0:
        owner = like.stat()
        os.chown(path, owner.st_uid, owner.st_gid)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    if binaries("debian15") is None:
        pytest.skip("PostgreSQL 15 is not installed: make servers")
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "root.crt"))
    cluster = Cluster.start("debian15")
    try:
        found = Certified(cluster, folder, authority, cluster.database("tls"))
        found.serve("127.0.0.1")
        (cluster.data / "pg_hba.conf").write_text(HBA)
        _write(cluster.data / "root.crt", (folder / "root.crt").read_bytes())
        cluster.execute("postgres", "create role by_certificate login replication")
        files = {"ssl_ca_file": "root.crt", "ssl_cert_file": "server.crt", "ssl_key_file": "server.key"}
        cluster.restart(settings={"ssl": "on", **files})
        yield found
    finally:
        cluster.stop()


@pytest.fixture(autouse=True)
def valid_certificate(certified: Certified) -> Iterator[None]:
    """Each test begins with a valid certificate for 127.0.0.1."""
    yield
    certified.serve("127.0.0.1")


def is_encrypted(options: PostgresOptions, replication: bool) -> bool:
    with connect(options, replication=replication) as connection:
        return connection.pgconn.ssl_in_use == 1


@pytest.mark.parametrize("replication", [False, True])
@pytest.mark.parametrize(
    "mode", [SslMode.ALLOW, SslMode.PREFER, SslMode.REQUIRE, SslMode.VERIFY_CA, SslMode.VERIFY_FULL]
)
def test_a_connection_is_encrypted(certified: Certified, mode: SslMode, replication: bool) -> None:
    assert is_encrypted(certified.options(database_sslmode=mode), replication)


def test_a_server_that_wants_tls_refuses_a_connection_without(certified: Certified) -> None:
    with pytest.raises(SourceError, match=r"has no entry that allows role .* to connect") as caught:
        connect(certified.options(database_sslmode=SslMode.DISABLE))
    assert "without TLS" in caught.value.message
    assert "database.sslmode=require" in caught.value.remedy


def test_a_certificate_for_another_host(certified: Certified) -> None:
    certified.serve("db.example.org")
    assert is_encrypted(certified.options(database_sslmode=SslMode.VERIFY_CA), False)
    with pytest.raises(SourceError, match=r'certificate for "db.example.org" .*does not match host name') as caught:
        connect(certified.options(database_sslmode=SslMode.VERIFY_FULL))
    assert "database.hostname" in caught.value.remedy


@pytest.mark.parametrize("mode", [SslMode.VERIFY_CA, SslMode.VERIFY_FULL])
def test_a_certificate_of_another_authority(certified: Certified, mode: SslMode) -> None:
    certified.serve("127.0.0.1", authority=trustme.CA())
    with pytest.raises(SourceError, match="was not issued by an authority") as caught:
        connect(certified.options(database_sslmode=mode))
    assert "database.sslrootcert" in caught.value.remedy


def test_a_certificate_that_has_expired(certified: Certified) -> None:
    certified.serve("127.0.0.1", not_before=days(-9), not_after=days(-1))
    with pytest.raises(SourceError, match="or it has expired"):
        connect(certified.options(database_sslmode=SslMode.VERIFY_FULL))


def test_a_missing_root_certificate(certified: Certified) -> None:
    with pytest.raises(SourceError, match="does not exist") as caught:
        connect(certified.options(database_sslmode=SslMode.VERIFY_FULL, database_sslrootcert="/nowhere/root.crt"))
    assert "sslrootcert" in caught.value.remedy


@pytest.mark.parametrize("replication", [False, True])
def test_a_role_is_known_by_its_certificate(certified: Certified, replication: bool) -> None:
    mine = certified.client("by_certificate")
    options = certified.options(
        database_sslmode=SslMode.VERIFY_FULL, database_user="by_certificate", database_password=Secret(), **mine
    )
    assert is_encrypted(options, replication)


def test_a_client_certificate_that_is_not_accepted(certified: Certified) -> None:
    options = certified.options(
        database_sslmode=SslMode.VERIFY_FULL, database_user="by_certificate", database_password=Secret()
    )
    with pytest.raises(SourceError, match="certificate") as caught:
        connect(options)
    assert "database.sslcert" in caught.value.remedy
    for theirs in (
        certified.client("somebody_else"),
        certified.client("by_certificate", trustme.CA()),
        certified.client("by_certificate", not_before=days(-9), not_after=days(-1)),
    ):
        with pytest.raises(SourceError) as caught:
            connect(replace(options, **theirs))
        assert "ertificate" in caught.value.message, caught.value.message


def test_a_key_that_others_can_read(certified: Certified) -> None:
    mine = certified.client("by_certificate")
    Path(mine["database_sslkey"]).chmod(0o644)
    options = certified.options(database_sslmode=SslMode.VERIFY_FULL, database_user="by_certificate", **mine)
    with pytest.raises(SourceError, match=r"private key file .* has group or world access"):
        connect(options)


def test_a_password_is_bound_to_the_channel(certified: Certified, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a server in the middle cannot use it; libpq does so by itself, and can be told to insist."""
    monkeypatch.setenv("PGCHANNELBINDING", "require")
    with connect(certified.options(database_sslmode=SslMode.REQUIRE)) as connection:
        assert connection.pgconn.used_password
    assert certified.cluster.password not in certified.cluster.log()


def days(count: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=count)
