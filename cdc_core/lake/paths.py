"""The path of each Delta table of a connector.

Names of schemas and tables become folders by ``folder``: plain names are unchanged, all other characters are encoded,
so that different names have different folders, none of which lies inside another or is read differently by a file
system, by Hadoop or as a URL.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.storage import Location, Storage
from cdc_core.lake.object_stores import for_hadoop
from cdc_core.schema import TableId

_ESCAPE = "~"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.$")
# Names that Delta, Hadoop or Spark read as metadata, the folders of wal2lake itself, and devices of Windows.
_RESERVED = re.compile(
    r"_(_|delta_|change_data|spark_|temporary|metadata|committed_|started_|symlink_).*"
    r"|(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?",
    re.IGNORECASE | re.DOTALL,
)
_ENCODED = re.compile(f"((?:{_ESCAPE}[0-9A-F]{{2}})+)")


def folder(name: str) -> str:
    """Return the folder of a schema or table; ``name_of`` is its inverse.

    Letters and digits of any alphabet, ``_``, ``-``, ``$`` and ``.`` are plain; every byte of the UTF-8 form of other
    characters is ``~`` with two hexadecimal digits. So are the first character of a reserved name, a dot that begins or
    ends the name, and, in a name that is not in Unicode's normal form C, all characters beyond ASCII.
    """
    is_normal = unicodedata.is_normalized("NFC", name)
    is_reserved = _RESERVED.fullmatch(name) is not None
    out = []
    for place, char in enumerate(name):
        is_plain = char in _PLAIN or (is_normal and not char.isascii() and char.isalnum())
        is_outer = place in (0, len(name) - 1) and char == "."
        if is_plain and not is_outer and not (is_reserved and place == 0):
            out.append(char)
        else:
            out.append("".join(f"{_ESCAPE}{byte:02X}" for byte in char.encode()))
    return "".join(out)


def name_of(folder: str) -> str:
    """Return the schema or table of a folder."""
    parts = _ENCODED.split(folder)
    return "".join(
        bytes.fromhex(part.replace(_ESCAPE, "")).decode() if place % 2 else part for place, part in enumerate(parts)
    )


@dataclass(frozen=True, slots=True)
class LakePaths:
    """The paths under ``<root>/<prefix>``: lake tables directly, everything else in folders that begin with ``__``.

    ``root`` is a folder, or a URI in one of the object stores (``object_stores``); ``prefix`` is ``topic.prefix``,
    ``storage`` the settings to access the root.
    """

    root: str
    prefix: str
    storage: Storage = field(default_factory=Storage)

    @staticmethod
    def try_commit(folder: str) -> None:
        """Make a file in an empty local folder as a commit makes its log entry. Raises LakeError."""
        Folder(folder).create("0.json", b"")

    def refuses_second_commit(self) -> bool:
        """Whether the object store of the lake refuses a second log entry of one name, by trying. Raises OSError."""
        return Folder.refuses_second_entry(Location(self.base, self.storage))

    @property
    def base(self) -> str:
        """``<root>/<prefix>`` by the scheme of Hadoop's driver; ``delta_uri`` converts it for delta-rs."""
        root = for_hadoop(self.root, self.storage.azure)
        return f"{root.rstrip('/')}/{self.prefix if self.prefix.strip('.') else folder(self.prefix)}"

    @property
    def is_local(self) -> bool:
        """Whether the tables are in the file system, also a remote one, and not in an object store."""
        return "://" not in self.base

    def lake(self, table: TableId) -> str:
        """The lake table, equal to the source's."""
        return self._of(table, "")

    def changelog(self, table: TableId) -> str:
        """Every change of the table."""
        return self._of(table, "__changelog/")

    def quarantine(self, table: TableId) -> str:
        """Change rows that a quality rule refused, with their reasons."""
        return self._of(table, "__quarantine/")

    @property
    def rounds(self) -> str:
        """The Delta version of each table that shows a given LSN of the source."""
        return self._at("__rounds")

    @property
    def stream(self) -> str:
        """What the stream is whose positions the lake holds (``stream_log``)."""
        return self._at("__stream")

    @property
    def snapshots(self) -> str:
        """The transactions that each snapshot shows."""
        return self._at("__snapshots")

    @property
    def ranges(self) -> str:
        """Ranges of tables that a snapshot in progress has read (``range_log``)."""
        return self._at("__ranges")

    @property
    def incremental(self) -> str:
        """The progress of incremental snapshots."""
        return self._at("__incremental")

    @property
    def staged(self) -> str:
        """Rows of incremental snapshots that are not in their lake tables yet (``staged_rows``)."""
        return self._at("__staged")

    @property
    def key_ranges(self) -> str:
        """How tables are divided into ranges for incremental snapshots (``range_plans``)."""
        return self._at("__key_ranges")

    @property
    def schema_versions(self) -> str:
        """The versions of its source that each lake table has had."""
        return self._at("__schema_versions")

    @property
    def notifications(self) -> str:
        """Notifications of snapshots, if the channel ``sink`` is enabled."""
        return self._at("__notifications")

    @property
    def messages(self) -> str:
        """Logical messages (``stores/stream_tables``)."""
        return self._at("__messages")

    @property
    def transactions(self) -> str:
        """Transaction metadata, if ``provide.transaction.metadata`` is set (``stores/stream_tables``)."""
        return self._at("__transactions")

    @property
    def topics(self) -> str:
        """The topic of each lake table, if events are written to Kafka, too."""
        return self._at("__topics")

    @property
    def reconciliations(self) -> str:
        """The results of comparisons with the source."""
        return self._at("__reconciliations")

    def _of(self, table: TableId, kind: str) -> str:
        return self._at(f"{kind}{folder(table.schema)}/{folder(table.table)}", f"table {table}")

    def _at(self, place: str, owner: str = "") -> str:
        return Location(f"{self.base}/{place}", self.storage, owner or f"topic.prefix {self.prefix}")
