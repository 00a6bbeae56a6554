"""What delta-rs does not tell of a log: vectors and row ids of data files, what was removed when, clustering columns.

All follow from the newest checkpoint and the commits after it. Once they are known, a later version costs no more
than its own commits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from cdc_core.arrays import Bools
from cdc_core.lake.delta import row_tracking
from cdc_core.lake.delta.data_file import DataFile, MarkedRows
from cdc_core.lake.delta.deletion_vectors import (
    DeletionVector,
    as_bitmap,
    as_places,
    decoded,
    inline_vectors,
    vector_file,
    vector_in,
)
from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.log_entry import CLUSTERING_DOMAIN, LogEntry
from cdc_core.lake.delta.log_text import unreadable_log, with_vector

LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
_READ = (
    *("add.path", "add.deletionVector", "add.baseRowId", "add.defaultRowCommitVersion"),
    *("remove.path", "remove.deletionTimestamp", "remove.deletionVector"),
    *("domainMetadata.domain", "domainMetadata.configuration", "domainMetadata.removed"),
    "sidecar",
)
_KINDS = (b'"add"', b'"remove"', b'"domainMetadata"')
# Of a table that is never cleaned.
_REMOVED = 50_000
# In the log of a store, where a file is a request more; the log has a removed file's vector for an hour.
_INLINE_BYTES = 4_096
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(parquet|json)")


def entry_name(version: int) -> str:
    """Return the path of a version's entry in the log."""
    return f"{LOG}/{version:020}.json"


def commit_time(folder: Folder, version: int) -> int:
    """Return a commit's own time in milliseconds, 0 if it has none. LakeError if its entry cannot be read."""
    try:
        first = folder.content(entry_name(version)).splitlines()[0]
        return int(json.loads(first)["commitInfo"].get("inCommitTimestamp", 0))
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise unreadable_log(folder.path, error) from None


class VectorLog:
    """The deletion vectors of the files of one table, and the positions in them that were used lately.

    ``entry`` returns a version's entry in the log, and raises FileNotFoundError.
    """

    def __init__(self, folder: Folder, entry: Callable[[int], bytes]) -> None:
        self._folder = folder
        self._entry = entry
        self._version = -1
        self._state = _State()
        self._bitmaps: dict[str, BitMap64] = {}

    def at(self, version: int) -> dict[str, DeletionVector]:
        """Return the vectors of a version by the paths of their files. LakeError if the log cannot be read."""
        if version == self._version:
            return self._state.vectors
        try:
            if not 0 <= self._version < version or not self._follow(version):
                self._load(version)
        except (OSError, ValueError, KeyError, pa.ArrowException) as error:
            self._version = -1
            raise unreadable_log(self._folder.path, error) from None
        self._version = version
        self._forget_unused()
        return self._state.vectors

    def clustered_by(self, version: int) -> tuple[str, ...]:
        """Return the clustering columns of a version by their physical names. LakeError if the log cannot be read."""
        self.at(version)
        return self._state.clustered_by

    def row_ids(self, version: int) -> Mapping[str, tuple[int, int]]:
        """Return base row ids and commit versions by the paths of files. LakeError if the log cannot be read."""
        self.at(version)
        return self._state.row_ids

    def highest_row_id(self, version: int) -> int:
        """Return the highest row id that a version or an earlier one has; NO_ROW_ID for none."""
        self.at(version)
        return self._state.highest_row_id

    def follow(self, version: int, entry: LogEntry) -> None:
        """Take over what a commit of our own did, instead of reading it from the log."""
        if self._version != version - 1:
            return
        self._state = self._state.copy()
        self._state.apply_entry(entry)
        self._version = version
        self._forget_unused()

    @property
    def removed(self) -> dict[str, int]:
        """The files of data and of vectors that the log removed, and when: milliseconds since 1970.

        A checkpoint leaves out those that were removed long ago. A file in it may still be in use by another vector, or
        contain one in use.
        """
        return self._state.removed

    def forget(self, before: float) -> None:
        """Forget what was removed before a time, in milliseconds since 1970."""
        self._state.removed = {name: at for name, at in self._state.removed.items() if at >= before}

    def write(self, marked: Sequence[MarkedRows], names: Mapping[str, str]) -> list[DataFile]:
        """Write the vectors of files in which rows are marked, whose numbers of rows are known: one file, or none.

        Returns the files with their new vectors, without those that have no other row. ``names`` as in ``with_vector``.
        """
        again, bitmaps = list[DataFile](), list[BitMap64]()
        for marks in marked:
            bitmap = as_bitmap(marks.places)
            if marks.file.vector is not None:
                bitmap |= self.deleted(marks.file.vector)
            if len(bitmap) < marks.file.rows:
                again.append(marks.file)
                bitmaps.append(bitmap)
        if not bitmaps:
            return []
        vectors = None if self._folder.is_local else inline_vectors(bitmaps, _INLINE_BYTES)
        if vectors is None:
            name, content, vectors = vector_file(bitmaps)
            self._folder.write(name, content)
        for vector, bitmap in zip(vectors, bitmaps, strict=True):
            self._bitmaps[vector.unique_id] = bitmap
        return [with_vector(file, vector, names) for file, vector in zip(again, vectors, strict=True)]

    def deleted(self, vector: DeletionVector) -> BitMap64:
        """Return the positions of a vector; not to be changed. LakeError if it cannot be read."""
        bitmap = self._bitmaps.get(vector.unique_id)
        if bitmap is None:
            bitmap = self._bitmaps[vector.unique_id] = self._read(vector)
        return bitmap

    def live(self, vector: DeletionVector, rows: int) -> Bools:
        """Return which rows of a file are not marked as deleted. Shape: bool[rows]"""
        mask = np.ones(rows, dtype=bool)
        mask[as_places(self.deleted(vector))] = False
        return mask

    def _forget_unused(self) -> None:
        if len(self._state.removed) > _REMOVED:
            self.forget(float(np.median(list(self._state.removed.values()))))
        used = {vector.unique_id for vector in self._state.vectors.values()}
        self._bitmaps = {name: bitmap for name, bitmap in self._bitmaps.items() if name in used}

    def _read(self, vector: DeletionVector) -> BitMap64:
        try:
            if vector.path is None:
                return decoded(vector.inline)
            content = self._folder.content(vector.path, vector.offset or 1, vector.size + 8)
            return vector_in(content, vector)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable_log(self._folder.path, error) from None

    def _follow(self, version: int) -> bool:
        """Apply the commits up to a version; False if one of them is not in the log any more."""
        state = self._state.copy()
        for number in range(self._version + 1, version + 1):
            try:
                content = self._entry(number)
            except FileNotFoundError:
                return False
            # A commit removes a file with one vector and adds it with the next.
            lines = [line for line in content.splitlines() if any(kind in line for kind in _KINDS)]
            state.apply([json.loads(line) for line in lines])
        self._state = state
        return True

    def _load(self, version: int) -> None:
        """Read the newest checkpoint up to a version, and the commits after it."""
        parts: dict[int, list[str]] = {}
        for name in self._folder.names(LOG):
            matched = _CHECKPOINT.fullmatch(name)
            if matched and int(matched[1]) <= version:
                parts.setdefault(int(matched[1]), []).append(name)
        for number in sorted(parts, reverse=True):
            for group in _alternatives(parts[number]):
                self._state, self._version = self._checkpoint(group), number
                if self._follow(version):
                    return
        self._state, self._version = _State(), -1
        if not self._follow(version):
            raise FileNotFoundError(entry_name(version))

    def _checkpoint(self, names: Iterable[str]) -> _State:
        state = _State()
        for name in names:
            if name.endswith(".json"):
                actions = [json.loads(line) for line in self._folder.content(f"{LOG}/{name}").splitlines()]
            else:
                actions = self._actions(f"{LOG}/{name}")
            state.apply(actions)
            for action in actions:
                if "sidecar" in action:
                    state.apply(self._actions(f"{LOG}/_sidecars/{action['sidecar']['path']}"))
        return state

    def _actions(self, name: str) -> list[dict[str, Any]]:
        """Return the actions of a checkpoint's Parquet file that concern files."""
        with self._folder.open_input(name) as source:
            parquet = pq.ParquetFile(source)
            have = parquet.schema_arrow.names
            rows = parquet.read(columns=[path for path in _READ if path.split(".")[0] in have], use_threads=False)
        # row-wise: one row per file of the table, or that it had lately
        return [{name: told for name, told in row.items() if told is not None} for row in rows.to_pylist()]


@dataclass(slots=True)
class _State:
    """The vectors by the paths of their files, and the times at which paths were removed, in milliseconds."""

    vectors: dict[str, DeletionVector] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)
    clustered_by: tuple[str, ...] = ()
    row_ids: dict[str, tuple[int, int]] = field(default_factory=dict)
    highest_row_id: int = row_tracking.NO_ROW_ID

    def copy(self) -> _State:
        vectors, removed, row_ids = dict(self.vectors), dict(self.removed), dict(self.row_ids)
        return _State(vectors, removed, self.clustered_by, row_ids, self.highest_row_id)

    def apply_entry(self, entry: LogEntry) -> None:
        """Apply a commit of our own."""
        if entry.clustered_by is not None:
            self.clustered_by = tuple(entry.clustered_by)
        if entry.highest_row_id is not None:
            self.highest_row_id = entry.highest_row_id
        for file in entry.removed:
            self._remove(unquote(file.path), file.vector, entry.made)
        for file in entry.added:
            self._add(unquote(file.path), file.vector, file.base_row_id, file.commit_version)

    def apply(self, actions: Sequence[dict[str, Any]]) -> None:
        """Apply the actions of one commit, or of a checkpoint, in any order."""
        for action in actions:
            gone = action.get("remove") or {}
            if gone.get("path") is not None:
                self._remove(unquote(gone["path"]), _vector_of(gone), gone.get("deletionTimestamp") or 0)
        for action in actions:
            told = action.get("add") or {}
            if told.get("path") is not None:
                row_ids = told.get("baseRowId"), told.get("defaultRowCommitVersion")
                self._add(unquote(told["path"]), _vector_of(told), *row_ids)
            domain = action.get("domainMetadata") or {}
            if domain.get("domain") == row_tracking.DOMAIN:
                self.highest_row_id = row_tracking.highest_in(domain)
            if domain.get("domain") == CLUSTERING_DOMAIN:
                columns = [] if domain.get("removed") else json.loads(domain["configuration"])["clusteringColumns"]
                self.clustered_by = tuple(".".join(column) for column in columns)

    def _remove(self, path: str, vector: DeletionVector | None, at: int) -> None:
        self.vectors.pop(path, None)
        self.row_ids.pop(path, None)
        # A checkpoint may have several removals of a file, each with another vector, in any order: the last one counts.
        for name in (path, None if vector is None else vector.path):
            if name is not None:
                self.removed[name] = max(at, self.removed.get(name, at))

    def _add(self, path: str, vector: DeletionVector | None, base: int | None, version: int | None) -> None:
        self.vectors.pop(path, None)
        self.row_ids.pop(path, None)
        if base is not None and version is not None:
            self.row_ids[path] = base, version
        if vector is not None:
            self.vectors[path] = vector


def _vector_of(told: dict[str, Any]) -> DeletionVector | None:
    description = told.get("deletionVector")
    return DeletionVector.of_log(description) if description and description.get("storageType") is not None else None


def _alternatives(names: list[str]) -> list[list[str]]:
    """Return the checkpoints of one version: a file, or several that belong together by their number of parts."""
    together: dict[str, list[str]] = {}
    for name in sorted(names):
        fields = name.split(".")
        together.setdefault(fields[3] if len(fields) == 5 else name, []).append(name)
    complete = [group for count, group in together.items() if not count.isdecimal() or int(count) == len(group)]
    return sorted(complete, key=len)
