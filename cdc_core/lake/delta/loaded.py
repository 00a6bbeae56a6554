"""delta-rs' object of a table, and the commits of our own that it has not loaded.

What a commit of our own did is known, and loading it costs delta-rs more than the commit. So it is only counted, until
something is needed that delta-rs alone can tell or do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.deletion_vectors import DeletionVector
from cdc_core.lake.delta.folder import Folder, delta_uri
from cdc_core.lake.delta.log_text import unreadable_log
from cdc_core.lake.delta.recent import RecentTable, claim
from cdc_core.lake.delta.vector_log import entry_name


class Loaded:
    """One table at one version. For one thread; ``recent`` may be read by others, too, until it is changed."""

    def __init__(self, path: str, options: Mapping[str, str] | None, recent: RecentTable) -> None:
        self._path = path
        self._options = None if options is None else dict(options)
        self.facts: Any = recent.raw
        """delta-rs' object for the schema, the metadata and the protocol, which our own commits do not change."""
        self._recent: RecentTable | None = recent
        self._ahead = 0
        self._txns = recent.txns  # as of this version, if delta-rs still is at _txns_at
        self._txns_at = recent.version

    @property
    def version(self) -> int:
        """The version, which delta-rs may not have loaded yet."""
        return int(self.facts.version()) + self._ahead

    def files(
        self,
        vectors: Mapping[str, DeletionVector],
        row_ids: Mapping[str, tuple[int, int]],
        names: Mapping[str, str],
    ) -> list[DataFile]:
        """Return the data files, with their statistics in the log and these vectors and row ids by their paths.

        ``names``: the columns by their names in statistics, where these differ.
        """
        return _listed(pa.table(self.exact().get_add_actions()), vectors, row_ids, names)

    def exact(self) -> Any:
        """Return delta-rs' object at this version, to be read. LakeError if it cannot be read."""
        from deltalake.exceptions import DeltaError

        if self._ahead:
            version = self.version
            try:
                if not self._is_alone():
                    raise FileNotFoundError
                self.facts.load_as_version(version)
            except (DeltaError, OSError):
                # The log may no longer have the entries that were not loaded.
                self._load(version)
            self._ahead = 0
        return self.facts

    def changeable(self) -> Any:
        """As ``exact``, to be changed: by commits."""
        self.exact()
        if not self._is_alone():
            self._load(self.version)
        return self.facts

    def refresh(self) -> None:
        """Load the newest version. LakeError if the log no longer exists or cannot be read."""
        from deltalake.exceptions import DeltaError

        before = self.version
        try:
            if self._is_alone():
                self.facts.update_incremental()
            else:
                self._reopen()
        except (DeltaError, OSError) as error:
            if not self._ahead:
                raise unreadable_log(self._path, error) from None
            self._reopen()
        self._ahead = 0
        # In a store delta-rs finds no newer entry of a log that was removed. The newest one is never cleaned away.
        if self.version == before and Folder(self._path, self._options).missing([entry_name(before)]):
            raise unreadable_log(self._path, FileNotFoundError())

    def follow(self, txns: Mapping[str, int]) -> None:
        """Count a commit of our own of the next version, with these positions, that changed nothing but files."""
        self._txns = {**self._known_txns(), **txns}
        self._ahead += 1

    def txn(self, app: str) -> int | None:
        """Return the version of the newest ``txn`` with this id; None if there is none."""
        known = self._known_txns()
        if app not in known:  # a call that reads the whole log's actions: 1 ms and more
            version = self.facts.transaction_version(app)
            known[app] = None if version is None else int(version)
        return known[app]

    def _known_txns(self) -> dict[str, int | None]:
        if self._txns_at != self.facts.version():
            self._txns, self._txns_at = {}, self.facts.version()
        return self._txns

    def _is_alone(self) -> bool:
        """Whether nobody else reads delta-rs' object, and from now on nobody will."""
        if self._recent is not None and claim(delta_uri(self._path), self._recent):
            self._recent = None
        return self._recent is None

    def _reopen(self) -> None:
        """Load the table from its newest checkpoint: the log may no longer have the entries that were not loaded."""
        identity = self.facts.metadata().id
        self._load()
        if self.facts.metadata().id != identity:
            raise unreadable_log(self._path, FileNotFoundError())

    def _load(self, version: int | None = None) -> None:
        """Take an object of its own, at a version or at the newest."""
        import deltalake
        from deltalake.exceptions import DeltaError

        try:
            self.facts = deltalake.DeltaTable(delta_uri(self._path), version, self._options)
        except (DeltaError, OSError) as error:
            raise unreadable_log(self._path, error) from None
        self._recent = None


def _listed(
    actions: pa.Table,
    vectors: Mapping[str, DeletionVector],
    row_ids: Mapping[str, tuple[int, int]],
    names: Mapping[str, str],
) -> list[DataFile]:
    # row-wise: one row per data file, of which a table has a few dozen
    files = []
    for row in actions.to_pylist():
        low, high, nulls = (
            {names.get(name, name): value for name, value in (row.get(part) or {}).items() if value is not None}
            for part in ("min", "max", "null_count")
        )
        nulls = {name: count for name, count in nulls.items() if isinstance(count, int)}
        path, count = row["path"], int(row["num_records"] or 0)
        vector = vectors.get(unquote(path)) if vectors else None
        base, version = row_ids.get(unquote(path), (None, None)) if row_ids else (None, None)
        files.append(DataFile(path, int(row["size_bytes"]), count, low, high, nulls, vector, base, version))
    return files
