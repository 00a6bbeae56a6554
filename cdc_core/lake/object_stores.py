"""The object stores that a lake can be in: for each its URIs, and its settings for delta-rs, obstore and Hadoop.

What a connector file does not set, delta-rs and obstore take from the environment, by the names of the store's own
tools. Hadoop's drivers for S3 and Google read the same; that for Azure is told here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cdc_core.option import Secret

_AZURE_HOST = ".dfs.core.windows.net"
_AZURE_SCHEMES = ("abfss", "abfs", "az")
_OF_DELTA_RS = {"s3a": "s3", "abfs": "abfss"}
_EXPECTED = "s3://bucket/folder, gs://bucket/folder, abfss://container@account.dfs.core.windows.net/folder"
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"


@dataclass(frozen=True, slots=True)
class S3:
    """S3, or a store that is compatible with it. Empty settings: AWS's environment, profiles and roles."""

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: Secret = field(default_factory=Secret)
    path_style: bool = False

    def for_delta_rs(self) -> dict[str, str]:
        """Return the storage options of deltalake, which are obstore's too, with the secret in clear text."""
        return _said(
            {
                "aws_endpoint_url": self.endpoint,
                "aws_region": self.region,
                "aws_access_key_id": self.access_key,
                "aws_secret_access_key": self.secret_key.reveal(),
                "allow_http": _if_http(self.endpoint),
                "aws_virtual_hosted_style_request": "false" if self.path_style else "",
                # A log entry is created only if it does not exist.
                "aws_conditional_put": "etag",
            }
        )

    def for_hadoop(self) -> dict[str, str]:
        """Return the settings of Hadoop's S3A, with the secret in clear text."""
        return _said(
            {
                "fs.s3a.endpoint": self.endpoint,
                "fs.s3a.endpoint.region": self.region,
                "fs.s3a.access.key": self.access_key,
                "fs.s3a.secret.key": self.secret_key.reveal(),
                "fs.s3a.path.style.access": "true" if self.path_style else "",
                "fs.s3a.connection.ssl.enabled": "false" if _if_http(self.endpoint) else "",
            }
        )


@dataclass(frozen=True, slots=True)
class Gcs:
    """Google Cloud Storage. ``account_file``: the JSON key of a service account; empty for Google's environment."""

    endpoint: str = ""
    account_file: str = ""

    def for_delta_rs(self) -> dict[str, str]:
        """Return the storage options of deltalake, which are obstore's too."""
        return _said(
            {
                "google_base_url": self.endpoint,
                "google_service_account": self.account_file,
                "allow_http": _if_http(self.endpoint),
            }
        )

    def for_hadoop(self) -> dict[str, str]:
        """Return the settings of Hadoop's driver (hadoop-gcp), which has none for an endpoint.

        Its own default are the credentials of the machine only.
        """
        file = self.account_file or _environment("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
        return _said(
            {
                "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE" if file else "APPLICATION_DEFAULT",
                "fs.gs.auth.service.account.json.keyfile": file,
            }
        )


@dataclass(frozen=True, slots=True)
class Azure:
    """Azure Blob Storage with its API of files (Data Lake Storage). Empty settings: Azure's environment.

    ``account_name`` is needed for URIs that do not say it (az://).
    """

    endpoint: str = ""
    account_name: str = ""
    account_key: Secret = field(default_factory=Secret)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: Secret = field(default_factory=Secret)

    @property
    def account(self) -> str:
        """The storage account, if the URI does not say it."""
        return self.account_name or _environment("AZURE_STORAGE_ACCOUNT_NAME")

    def for_delta_rs(self) -> dict[str, str]:
        """Return the storage options of deltalake, which are obstore's too, with the secrets in clear text."""
        return _said(
            {
                "azure_storage_endpoint": self.endpoint,
                "azure_storage_account_key": self.account_key.reveal(),
                "azure_storage_tenant_id": self.tenant_id,
                "azure_storage_client_id": self.client_id,
                "azure_storage_client_secret": self.client_secret.reveal(),
                "allow_http": _if_http(self.endpoint),
            }
        )

    def for_hadoop(self) -> dict[str, str]:
        """Return the settings of Hadoop's ABFS, with the secrets in clear text; from the environment as obstore's."""
        key = self.account_key.reveal() or _environment(
            "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"
        )
        if key:
            return {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": key}
        tenant = self.tenant_id or _environment("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID")
        client = self.client_id or _environment("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID")
        secret = self.client_secret.reveal() or _environment("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET")
        federated = _environment("AZURE_FEDERATED_TOKEN_FILE")
        sas = _environment("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN")
        oauth = {"fs.azure.account.auth.type": "OAuth", "fs.azure.account.oauth2.client.id": client}
        if secret:
            return oauth | {
                "fs.azure.account.oauth.provider.type": f"{_OAUTH}.ClientCredsTokenProvider",
                "fs.azure.account.oauth2.client.endpoint": f"https://login.microsoftonline.com/{tenant}/oauth2/token",
                "fs.azure.account.oauth2.client.secret": secret,
            }
        if federated:
            return oauth | {
                "fs.azure.account.oauth.provider.type": f"{_OAUTH}.WorkloadIdentityTokenProvider",
                "fs.azure.account.oauth2.msi.tenant": tenant,
                "fs.azure.account.oauth2.token.file": federated,
            }
        if sas:
            return {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": sas.removeprefix("?")}
        return _said(oauth) | {"fs.azure.account.oauth.provider.type": f"{_OAUTH}.MsiTokenProvider"}


def scheme(path: str) -> str:
    """Return the scheme of a lake path in an object store, ``abfss`` for each of Azure's; empty for a local path."""
    found = path.partition(":")[0] if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path) else ""
    if found in _AZURE_SCHEMES:
        return "abfss"
    return "s3" if found == "s3a" else "" if found == "file" else found


def parse_lake_path(text: str) -> str:
    """Return the path of a lake as it is; raises ValueError for what is neither a folder nor in a store of these."""
    path = text.strip()
    named = path.partition(":")[0]
    if scheme(path) not in ("", "s3", "gs", "abfss"):
        raise ValueError(f"a folder, or a URI as {_EXPECTED} or az://container/folder; {named}:// is not supported")
    if not scheme(path):
        return path
    told = urlsplit(path)
    if "://" not in path or not told.netloc or told.query or told.fragment:
        raise ValueError(f"a URI as {_EXPECTED}")
    container, _, host = told.netloc.rpartition("@")
    if named in ("abfss", "abfs") and (not container or not _account_of(host)):
        raise ValueError(f"a URI as abfss://container@account{_AZURE_HOST}/folder")
    if named not in ("abfss", "abfs") and ("@" in told.netloc or ":" in told.netloc):
        raise ValueError(f"a URI as {_EXPECTED} or az://container/folder, without credentials and port")
    return path


def for_hadoop(path: str, azure: Azure) -> str:
    """Return a lake path with the scheme of Hadoop's driver, which is what tables are known by.

    az:// is abfss:// with the account; without one it stays. An endpoint that is http:// makes it abfs://.
    """
    kind, _, rest = path.partition("://")
    if kind in ("s3", "s3a"):
        return f"s3a://{rest}"
    if kind not in _AZURE_SCHEMES:
        return path
    secure = "abfs" if _if_http(azure.endpoint) else "abfss"
    if kind != "az":
        return f"{secure}://{rest}"
    container, slash, folder = rest.partition("/")
    return f"{secure}://{container}@{azure.account}{_AZURE_HOST}{slash}{folder}" if azure.account else path


def for_delta_rs(path: str) -> str:
    """Return a lake path, other than a local one, with the scheme of delta-rs."""
    kind, separator, rest = path.partition("://")
    return f"{_OF_DELTA_RS.get(kind, kind)}{separator}{rest}"


def _account_of(host: str) -> str:
    return host.removesuffix(_AZURE_HOST) if host.endswith(_AZURE_HOST) else ""


def _if_http(endpoint: str) -> str:
    return "true" if endpoint.startswith("http://") else ""


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _said(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if value}
