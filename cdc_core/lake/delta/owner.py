"""The owner of a Delta table's folder, in the table's own metadata.

Names that differ may lead to one folder: storage may ignore case, compare other Unicode forms as equal, or cut names.
Which it does is not known in advance, and differs between the mounts of one machine. So each table that is created has
its owner among its properties, which the first entry of its log makes durable, and whoever opens the table by its path
compares it with the owner that the path is meant for (``Location``): two tables never share a folder.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc_core.errors import SharedFolderError
from cdc_core.lake.delta.storage import Location

_OWNER = "wal2lake.owner"


def owner_property(path: str) -> dict[str, str]:
    """Return the property of a table that is created at a path."""
    owner = path.owner if isinstance(path, Location) else ""
    return {_OWNER: owner} if owner else {}


def check_owner(path: str, properties: Mapping[str, str | None]) -> None:
    """Raise SharedFolderError if a table's properties name another owner than its path. Without one it is anybody's."""
    recorded, own = properties.get(_OWNER), path.owner if isinstance(path, Location) else ""
    if recorded and own and recorded != own:
        raise SharedFolderError.of(path, recorded, own)
