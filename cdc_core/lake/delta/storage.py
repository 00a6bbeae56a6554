"""The storage of tables and its settings: one set for both engines, Hadoop's S3A and delta-rs.

A path includes its settings (``Location``), so that it can be opened in any process, also in a task. Secrets remain
references until they are used: they are neither pickled nor in Spark's configuration, which its UI shows, but are set
in Hadoop's own configuration once the context is running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.options import LakeOptions
from cdc_core.option import Secret

LOG_STORE = ("spark.delta.logStore.s3a.impl", "wal2lake.S3ConditionalLogStore")
"""The setting with which Delta on Spark commits like delta-rs, by conditional PUTs (``spark/s3_log_store``)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Settings of an S3 store; empty ones use each engine's own defaults (AWS's environment and roles).

    ``copies``: a folder of each machine with copies of the lake's recent files, at most ``copies_max_bytes`` of them
    (``objects``); empty for none.
    """

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: Secret = field(default_factory=Secret)
    path_style: bool = False
    copies: str = ""
    copies_max_bytes: int = 0

    @classmethod
    def of(cls, options: LakeOptions, copies: str = "") -> Storage:
        """Create the settings from the options."""
        return cls(
            options.storage_s3_endpoint,
            options.storage_s3_region,
            options.storage_s3_access_key,
            options.storage_s3_secret_key,
            options.storage_s3_path_style,
            copies,
            options.merge_index_max_bytes,
        )

    @staticmethod
    def spark_settings(path: str) -> dict[str, str]:
        """Return the settings with which Spark's session must be started for tables under ``path``. Without secrets."""
        return dict([LOG_STORE]) if is_s3(path) else {}

    def reach(self, session: Any, path: str) -> None:
        """Configure a running Spark session to access ``path``; does nothing for other file systems."""
        if is_s3(path):
            from cdc_core.spark import install

            install(session.sparkContext)
            hadoop = session.sparkContext._jsc.hadoopConfiguration()
            for name, value in self.for_hadoop().items():
                hadoop.set(name, value)

    def for_delta_rs(self) -> dict[str, str]:
        """Return the storage options of deltalake, with the secret in clear text."""
        options = {
            "aws_endpoint_url": self.endpoint,
            "aws_region": self.region,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key.reveal(),
            "aws_allow_http": "true" if self.endpoint.startswith("http://") else "",
            "aws_virtual_hosted_style_request": "false" if self.path_style else "",
            # A log entry is created only if it does not exist.
            "aws_conditional_put": "etag",
        }
        return {name: value for name, value in options.items() if value}

    def for_hadoop(self) -> dict[str, str]:
        """Return the settings of S3A, with the secret in clear text."""
        settings = {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key.reveal(),
            "fs.s3a.path.style.access": "true" if self.path_style else "",
            "fs.s3a.connection.ssl.enabled": "false" if self.endpoint.startswith("http://") else "",
        }
        return {name: value for name, value in settings.items() if value}


class Location(str):
    """A table's path or URI, with the settings to access it, and the ``owner`` of the folder (``delta/owner``)."""

    __slots__ = ("owner", "storage")
    storage: Storage
    owner: str

    def __new__(cls, path: str, storage: Storage, owner: str = "") -> Location:
        """Create the path with its settings ``storage``; without an ``owner`` the folder may be anybody's."""
        made = super().__new__(cls, path)
        made.storage = storage
        made.owner = owner
        return made

    def __reduce__(self) -> tuple[type[Location], tuple[str, Storage, str]]:
        return Location, (str(self), self.storage, self.owner)


def is_s3(path: str) -> bool:
    """Whether a path is on S3."""
    return path.startswith(("s3://", "s3a://"))


def options_for(path: str, options: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the storage options of deltalake for a path; None if it needs none."""
    if options is not None:
        return dict(options) or None
    if isinstance(path, Location) and is_s3(path):
        return path.storage.for_delta_rs()
    return None


def copies_for(path: str) -> MachineFolder | None:
    """Return this machine's folder of copies of a path's files; None if there is none, and for a local path."""
    if isinstance(path, Location) and is_s3(path) and path.storage.copies:
        return _folder(path.storage.copies, path.storage.copies_max_bytes)
    return None


@cache
def _folder(path: str, most_bytes: int) -> MachineFolder:
    return MachineFolder(Path(path), most_bytes, ".object", "copies of the lake's files")
