"""A Kafka broker on this machine, for the demo and the tests: Apache Kafka in KRaft mode, one node.

Its jars come from Maven Central by the Ivy that PySpark contains, once; ``DEFAULT_ARTIFACT_REPOSITORY`` names a mirror,
as for Delta's jars, and ``WAL2LAKE_KAFKA_JARS`` a folder of jars.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cdc_core.demo.processes import free_port
from cdc_core.errors import TransientError
from cdc_core.spark import java, retrieve

VERSION = "4.2.0"
JARS_VARIABLE = "WAL2LAKE_KAFKA_JARS"
_FORMAT_SECONDS = 60.0
_START_SECONDS = 90.0
_STOP_SECONDS = 20.0
_NAP_SECONDS = 0.1
# One node on one machine: small, and at once able to end, and to be killed.
_JAVA = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=CONTROLLER://127.0.0.1:{controller},{listeners}
advertised.listeners={listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="admin" password="admin-secret" user_admin="admin-secret" user_cdc="cdc-secret";
log.dirs={folder}/data
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
_SECURED = """\
listener.name.sasl_ssl.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={certificate}
"""


def jars_folder() -> Path:
    """The folder of the broker's jars; it may not exist yet."""
    given = os.environ.get(JARS_VARIABLE, "").strip()
    return Path(given) if given else Path(sys.prefix) / "share" / "wal2lake" / f"kafka-{VERSION}"


def fetch() -> Path:
    """Return the folder of the jars, which are downloaded if they are missing. Raises ConfigError."""
    folder = jars_folder()
    if not (folder / f"kafka_2.13-{VERSION}.jar").exists():
        retrieve("org.apache.kafka", "kafka_2.13", VERSION, folder)
    return folder


@dataclass(frozen=True, slots=True)
class Secured:
    """A listener with TLS and SCRAM-SHA-512. ``certificate`` is a PEM file of key (PKCS #8) and certificates.

    ``users`` maps names to passwords; they are created when the node is formatted.
    """

    certificate: Path
    users: Mapping[str, str]


class Broker:
    """One node in ``folder``, which is formatted if it is new. ``more`` are settings of the broker.

    The listener at ``servers`` has no authentication, the one at ``sasl_servers`` asks for SASL PLAIN: user ``cdc``
    with the password ``cdc-secret``. ``secured_servers`` exists with ``secured``. A context manager; ``stop`` and
    ``start`` keep the ports and the data.
    """

    def __init__(self, folder: Path, more: Mapping[str, str] | None = None, secured: Secured | None = None) -> None:
        self._folder = folder.resolve()
        self._more = dict(more or {})
        self._secured = secured
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._sasl_port, self._secured_port, self._controller = (free_port() for _ in range(4))

    @property
    def servers(self) -> str:
        """The broker's address."""
        return f"127.0.0.1:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """The address of the listener with SASL."""
        return f"127.0.0.1:{self._sasl_port}"

    @property
    def secured_servers(self) -> str:
        """The address of the listener with TLS and SCRAM."""
        return f"127.0.0.1:{self._secured_port}"

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the broker and wait until it accepts connections. Raises TransientError."""
        classes = f"{fetch()}/*"
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        properties.write_text(self._settings(), encoding="utf-8")
        if not (self._folder / "data" / "meta.properties").exists():
            order = [java(), *_JAVA, "-cp", classes, "kafka.tools.StorageTool", "format"]
            order += ["-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(properties)]
            for name, password in ({} if self._secured is None else self._secured.users).items():
                order += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
            subprocess.run(order, check=True, capture_output=True, timeout=_FORMAT_SECONDS)
        log = (self._folder / "broker.log").open("ab")
        with log:
            self._process = process = subprocess.Popen(
                [java(), *_JAVA, "-cp", classes, "kafka.Kafka", str(properties)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._await_port(process)
        except BaseException:
            self.stop()
            raise

    def stop(self, *, kill: bool = False) -> None:
        """End the broker, in order or at once, and wait for its end."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)

    def _settings(self) -> str:
        listeners = [f"PLAINTEXT://{self.servers}", f"SASL_PLAINTEXT://{self.sasl_servers}"]
        if self._secured is not None:
            listeners.append(f"SASL_SSL://{self.secured_servers}")
        text = _SETTINGS.format(controller=self._controller, listeners=",".join(listeners), folder=self._folder)
        if self._secured is not None:
            text += _SECURED.format(certificate=self._secured.certificate)
        return text + "".join(f"{name}={value}\n" for name, value in self._more.items())

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1.0)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(_NAP_SECONDS)
        raise TransientError(f"Apache Kafka did not start; see {self._folder / 'broker.log'}.")
