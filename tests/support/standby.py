"""A primary and its physical standby, as tests of promotions use them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.support.cluster import Cluster
from tests.support.waits import repeated, wait_until

_SYNCED = "select 1 from pg_replication_slots where slot_name = %s and synced and not temporary"


@contextmanager
def servers(**more: str) -> Iterator[tuple[Cluster, Cluster]]:
    """A primary and its standby; ``more`` are settings of both."""
    primary = Cluster.start("embedded18", {"wal_keep_size": "1GB", **more})
    standby: Cluster | None = None
    try:
        primary.execute("postgres", "select pg_create_physical_replication_slot('of_standby', true)")
        primary.halt()
        folder = primary.sockets / "standby"
        shutil.copytree(primary.data, folder)
        owner = primary.data.stat()
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, owner.st_uid, owner.st_gid)
        for slot in (folder / "pg_replslot").iterdir():
            shutil.rmtree(slot)
        (folder / "standby.signal").touch()
        shutil.chown(folder / "standby.signal", owner.st_uid, owner.st_gid)
        primary.restart()
        follows = {
            "primary_conninfo": f"host={primary.sockets} port={primary.port} user={primary.user} dbname=postgres",
            "primary_slot_name": "of_standby",
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1s",
            **more,
        }
        standby = Cluster.start("embedded18", follows, folder)
        yield primary, standby
    finally:
        if standby is not None:
            standby.stop()
        primary.stop()


def caught_up(primary: Cluster, standby: Cluster) -> None:
    """Wait until the standby shows what the primary has now."""
    end = primary.execute("postgres", "select pg_current_wal_lsn()")[0][0]
    wait_until(
        lambda: standby.execute("postgres", "select pg_last_wal_replay_lsn() >= %s::pg_lsn", [end])[0][0], 60, "replay"
    )


def logging_snapshots(primary: Cluster) -> AbstractContextManager[None]:
    """Let the primary write what runs into its WAL, as it does every 15 seconds while it is busy."""
    return repeated(lambda: primary.execute("postgres", "select pg_log_standby_snapshot()"), 0.3)


def is_synchronized(standby: Cluster, slot: str) -> bool:
    """Whether the standby keeps a copy of the primary's slot that outlives a promotion."""
    return bool(standby.execute("postgres", _SYNCED, [slot]))
