"""The image's entry point as a container runs it: not root, on a read-only root, without a network, stopped by SIGTERM.

Source and connector file are those of ``deploy/``: compose's SQL and the ConfigMap of Kubernetes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cluster import Cluster
from tests.support.lake import rows
from tests.support.waits import patient, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

DEPLOY = Path(__file__).parents[2] / "deploy"
USER = 10001
# The image's user has a name, without which Java has no home. As in the pod, only /tmp and the data can be written to.
# The interpreter of the tests may lie in a folder that is closed to others, so reading is allowed everywhere; nothing
# else is.
CONTAINER = f"""
mount --bind /tmp /tmp
mount --bind "$1" "$1"
(cat /etc/passwd; echo "wal2lake:x:{USER}:{USER}::$HOME:/bin/sh") > "$1/../passwd"
mount --bind "$1/../passwd" /etc/passwd
mount -o remount,bind,ro /
shift
{sys.executable} -c 'if True:
    import fcntl, socket, struct
    up = struct.pack("16sh", b"lo", 1)
    fcntl.ioctl(socket.socket(), 0x8914, up)'
caps=-all,+dac_read_search
exec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs \
    --inh-caps=$caps --ambient-caps=$caps --bounding-set=$caps "$@"
"""
STREAMING = '"event": "streaming"'
_DROP_SLOT = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'shop'"
NEEDED = ("unshare", "setpriv", "nsenter", "mount")


def contained(folder: Path, *command: str) -> list[str]:
    """The command in namespaces of its own, with the process id that it is started with."""
    return ["unshare", "--mount", "--net", "--", "sh", "-e", "-c", CONTAINER, "sh", str(folder), *command]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that others may enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="w2l-contained-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def deployment() -> dict[str, Any]:
    [found] = [each for each in _resources() if each["kind"] == "Deployment"]
    return found["spec"]["template"]["spec"]


def connector_text() -> str:
    [found] = [each for each in _resources() if each["kind"] == "ConfigMap"]
    return str(found["data"]["shop.properties"])


def secrets() -> dict[str, str]:
    [found] = [each for each in _resources() if each["kind"] == "Secret"]
    return dict(found["stringData"])


def _resources() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "wal2lake.yaml").read_text()))


@contextmanager
def source(pg: Cluster) -> Iterator[str]:
    """A database in which compose's SQL was run."""
    database = pg.database("contained")
    sql = (DEPLOY / "compose" / "init.sql").read_text().replace("DATABASE shop", f"DATABASE {database}")
    pg.execute(database, sql)
    try:
        yield database
    finally:
        pg.execute(
            database, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'shop'"
        )
        pg.execute(database, "drop owned by wal2lake; drop role wal2lake")


def processes() -> list[str]:
    """The processes of the container's user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if f"Uid:\t{USER}\t" in (folder / "status").read_text():
                found.append(folder.name)
    return found


def test_the_pod_streams_answers_its_probes_and_stops_in_time(pg: Cluster, folder: Path) -> None:
    data = folder / "data"
    data.mkdir()
    shutil.chown(data, USER, USER)
    may = all(map(shutil.which, NEEDED)) and subprocess.run(
        contained(data, "true"), capture_output=True, timeout=patient(60), check=False
    )
    if not may or may.returncode:
        pytest.skip(f"namespaces cannot be made here: {may and may.stderr.decode()[-200:]}")
    with source(pg) as database:
        file = folder / "shop.properties"
        text = connector_text().replace("/data/", f"{data}/").replace("database.sslmode=require\n", "")
        text = text.replace("dbname=shop", f"dbname={database}").replace("postgres.shop.svc", str(pg.sockets))
        file.write_text(f"{text}database.port={pg.port}\nwal2lake.freshness.seconds=0\n")
        pod = deployment()
        [container] = pod["containers"]
        command, _ = container["args"]
        output = folder / "output"
        with output.open("w") as target:
            run = subprocess.Popen(
                contained(data, str(Path(sys.executable).parent / "wal2lake"), command, str(file)),
                env={**os.environ, **secrets()},
                stdout=target,
                stderr=target,
            )
        try:
            wait_until(
                lambda: '"event": "streaming"' in output.read_text() or run.poll() is not None, 180, "the stream"
            )
            assert run.poll() is None, output.read_text()[-3000:]
            for probe in (container["startupProbe"], container["livenessProbe"]):
                [port] = [each for each in container["ports"] if each["name"] == probe["httpGet"]["port"]]
                url = f"http://127.0.0.1:{port['containerPort']}{probe['httpGet']['path']}"
                ask = f"from urllib.request import urlopen; print(urlopen({url!r}, timeout=10).status)"
                within = ["nsenter", "-t", str(run.pid), "-n", sys.executable, "-c", ask]
                asked = subprocess.run(within, capture_output=True, text=True, timeout=patient(60), check=False)
                assert asked.stdout == "200\n", asked.stderr
            pg.execute(database, "update orders set quantity = 11 where id = 1")
            lake = data / "lake" / "shop" / "public" / "orders"
            wait_until(lambda: sorted(row["quantity"] for row in rows(lake)) == [11, 20], 90, "the change in the lake")
            run.send_signal(signal.SIGTERM)
            assert run.wait(pod["terminationGracePeriodSeconds"]) == 0, output.read_text()[-3000:]
            wait_until(lambda: not processes(), 30, "the end of what the container started")
        finally:
            run.kill()
            run.wait(patient(30))
        assert {each.name for each in data.iterdir()} == {"lake", "state"}
