"""The storage of tables and its settings: one set for both engines, Hadoop's drivers and delta-rs.

A path includes its settings (``Location``), so that it can be opened in any process, also in a task. Secrets remain
references until they are used: they are neither pickled nor in Spark's configuration, which its UI shows, but are set
in Hadoop's own configuration once the context is running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_core.errors import ConfigError
from cdc_core.lake.delta.machine_folder import MachineFolder
from cdc_core.lake.object_stores import S3, Azure, Gcs, scheme
from cdc_core.lake.options import LakeOptions
from cdc_core.option import properties_of

if TYPE_CHECKING:
    from cdc_core.spark import Session

PREFIX = "wal2lake.storage."
LOG_STORE = ("spark.delta.logStore.s3a.impl", "wal2lake.S3ConditionalLogStore")
"""The setting with which Delta on Spark commits like delta-rs, by conditional PUTs (``spark/s3_log_store``)."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Settings of the object stores, of which a path uses that of its scheme; empty ones use the environment.

    ``copies``: a folder of each machine with copies of the lake's recent files, at most ``copies_max_bytes`` of them
    (``objects``); empty for none.
    """

    s3: S3 = field(default_factory=S3)
    gcs: Gcs = field(default_factory=Gcs)
    azure: Azure = field(default_factory=Azure)
    copies: str = ""
    copies_max_bytes: int = 0

    @classmethod
    def of(cls, options: LakeOptions, copies: str = "") -> Storage:
        """Create the settings from the options."""
        s3 = S3(
            options.storage_s3_endpoint,
            options.storage_s3_region,
            options.storage_s3_access_key,
            options.storage_s3_secret_key,
            options.storage_s3_path_style,
        )
        gcs = Gcs(options.storage_gcs_endpoint, options.storage_gcs_account_file)
        azure = Azure(
            options.storage_azure_endpoint,
            options.storage_azure_account_name,
            options.storage_azure_account_key,
            options.storage_azure_tenant_id,
            options.storage_azure_client_id,
            options.storage_azure_client_secret,
        )
        return cls(s3, gcs, azure, copies, options.merge_index_max_bytes)

    @classmethod
    def named(cls, settings: Mapping[str, str]) -> Storage:
        """Create them from the properties ``wal2lake.storage.*``, given by what follows in their names.

        Raises ConfigError for a name that is none, and for a value that is not valid.
        """
        known = {
            declared.name.removeprefix(PREFIX): (name, declared)
            for name, declared in properties_of(LakeOptions).items()
            if declared.name.startswith(PREFIX)
        }
        fields = {}
        for name, value in settings.items():
            if name not in known:
                raise ConfigError(f"There is no setting {name} of an object store.", f"Known are {sorted(known)}.")
            option, declared = known[name]
            try:
                fields[option] = declared.parse(value)
            except ValueError as error:
                raise ConfigError(f"The setting {name} of an object store is expected to be {error}.") from None
        return cls.of(LakeOptions(**fields))

    @staticmethod
    def spark_settings(path: str) -> dict[str, str]:
        """Return the settings with which Spark's session must be started for tables under ``path``. Without secrets.

        Delta's own log stores for Google and Azure create an entry only where there is none.
        """
        return dict([LOG_STORE]) if scheme(path) == "s3" else {}

    def reach(self, session: Session, path: str) -> None:
        """Configure a running Spark session to access ``path``; does nothing for other file systems."""
        store = self.store(path)
        if store is None:
            return
        if isinstance(store, S3):
            from cdc_core.spark import install

            install(session.sparkContext)
        hadoop = session.sparkContext._jsc.hadoopConfiguration()
        for name, value in store.for_hadoop().items():
            hadoop.set(name, value)

    def store(self, path: str) -> S3 | Gcs | Azure | None:
        """Return the settings of the store that ``path`` is in; None for a path in a file system."""
        stores: dict[str, S3 | Gcs | Azure] = {"s3": self.s3, "gs": self.gcs, "abfss": self.azure}
        return stores.get(scheme(path))


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


def options_for(path: str, options: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """Return the storage options of deltalake for a path; None if it needs none."""
    if options is not None:
        return dict(options) or None
    store = path.storage.store(path) if isinstance(path, Location) else None
    return None if store is None else store.for_delta_rs() or None


def copies_for(path: str) -> MachineFolder | None:
    """Return this machine's folder of copies of a path's files; None if there is none, and for a local path."""
    if isinstance(path, Location) and path.storage.copies and path.storage.store(path) is not None:
        return _folder(path.storage.copies, path.storage.copies_max_bytes)
    return None


@cache
def _folder(path: str, most_bytes: int) -> MachineFolder:
    return MachineFolder(Path(path), most_bytes, ".object", "copies of the lake's files")
