"""Tags of materializations that a run logs as it goes: which versions of its inputs a lake table was made from."""

from __future__ import annotations

from cdc_core.schema import TableId
from wal2lake.pipelines.connector.keys import changes_key, snapshot_key, source_key
from wal2lake.pipelines.connector.site import Site

DATA_VERSION = "dagster/data_version"
# As Dagster sets them for the results of a step. Without them it compares times: a lake table without changes would be
# "unsynced" as soon as its connector's changes are materialized again.
_CODE = "dagster/code_version"
_INPUT = "dagster/input_data_version"
_POINTER, _NO_POINTER = "dagster/input_event_pointer", "NULL"
# Dagster's version of an external asset of which nothing was reported.
_EXTERNAL = "INITIAL"


def version_tags(version: str) -> dict[str, str]:
    """The tag that ``MaterializeResult.data_version`` sets."""
    return {DATA_VERSION: version}


def lake_tags(site: Site, table: TableId, version: str) -> dict[str, str]:
    """The tags of a lake table at a version. Snapshot and changes have the slot's name as their version, always."""
    tags = {**version_tags(version), _CODE: site.slot}
    inputs = {changes_key(site): site.slot, snapshot_key(site): site.slot, source_key(site, table): _EXTERNAL}
    for key, made_from in inputs.items():
        name = key.to_user_string()
        tags |= {f"{_INPUT}/{name}": made_from, f"{_POINTER}/{name}": _NO_POINTER}
    return tags
