"""Where tables lie and how they are reached: one set of settings for both engines, Hadoop's S3A and delta-rs.

A path carries its settings (``Location``), so that whoever opens the table at it, in a task too, reaches it. Secrets
stay references until the moment of use: they are neither in what is pickled nor in Spark's configuration, which its UI
shows, but are put into Hadoop's own configuration once the context runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdc_core.option import Secret
from cdc_core.sink.options import SinkOptions

LOG_STORE = ("spark.delta.logStore.s3a.impl", "wal2lake.S3ConditionalLogStore")
"""The setting by which Delta on Spark commits as delta-rs does, by conditional PUTs (``spark/s3_log_store``)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Settings of an S3 store; empty ones are left to each engine's own defaults (AWS's environment and roles)."""

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: Secret = field(default_factory=Secret)
    path_style: bool = False

    @classmethod
    def of(cls, options: SinkOptions) -> Storage:
        """As the options say."""
        return cls(
            options.storage_s3_endpoint,
            options.storage_s3_region,
            options.storage_s3_access_key,
            options.storage_s3_secret_key,
            options.storage_s3_path_style,
        )

    def for_delta_rs(self) -> dict[str, str]:
        """Storage options of deltalake, the secret in clear."""
        found = {
            "aws_endpoint_url": self.endpoint,
            "aws_region": self.region,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key.reveal(),
            "aws_allow_http": "true" if self.endpoint.startswith("http://") else "",
            "aws_virtual_hosted_style_request": "false" if self.path_style else "",
            # A log entry is created only where there is none.
            "aws_conditional_put": "etag",
        }
        return {name: value for name, value in found.items() if value}

    def for_hadoop(self) -> dict[str, str]:
        """Settings of S3A, the secret in clear."""
        found = {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": self.region,
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key.reveal(),
            "fs.s3a.path.style.access": "true" if self.path_style else "",
            "fs.s3a.connection.ssl.enabled": "false" if self.endpoint.startswith("http://") else "",
        }
        return {name: value for name, value in found.items() if value}


class Location(str):
    """A table's path or URI, with the settings by which it is reached."""

    __slots__ = ("storage",)
    storage: Storage

    def __new__(cls, path: str, storage: Storage) -> Location:
        """The path as a text that carries ``storage``."""
        made = super().__new__(cls, path)
        made.storage = storage
        return made

    def __reduce__(self) -> tuple[type[Location], tuple[str, Storage]]:
        return Location, (str(self), self.storage)


def is_s3(path: str) -> bool:
    """Whether a path is one of S3's."""
    return path.startswith(("s3://", "s3a://"))


def options_for(path: str, given: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Storage options of deltalake for a path; None where it needs none."""
    if given is not None:
        return dict(given) or None
    if isinstance(path, Location) and is_s3(path):
        return path.storage.for_delta_rs()
    return None


def spark_settings(path: str) -> dict[str, str]:
    """What Spark's session must be started with for tables under ``path``. No secret."""
    return dict([LOG_STORE]) if is_s3(path) else {}


def reach(session: Any, path: str, storage: Storage) -> None:
    """Let a running Spark session reach ``path``; nothing is done for other file systems."""
    if is_s3(path):
        from cdc_core.spark.s3_log_store import install

        install(session.sparkContext)
        hadoop = session.sparkContext._jsc.hadoopConfiguration()
        for name, value in storage.for_hadoop().items():
            hadoop.set(name, value)
