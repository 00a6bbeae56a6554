"""What the assets of snapshots have in common: a run a backfill, each partition reported when it is in the lake."""

import warnings
from collections.abc import Callable
from typing import Any

import dagster as dg

from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.step.resources import spark_key


def partitioned_asset(
    site: Site, key: dg.AssetKey, partitions: dg.PartitionsDefinition[str], pool: str, description: str
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The decorator of an asset whose runs read tables of the connector in a Spark session."""
    # The parameter backfill_policy is marked beta; the warning is suppressed, because it would be repeated at every
    # load.
    warnings.filterwarnings("ignore", message=".*backfill_policy.*", category=dg.BetaWarning)
    return dg.asset(
        key=key,
        partitions_def=partitions,
        # All partitions of a backfill in one run: one exported snapshot of all tables, one Spark session.
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=site.group(),
        kinds={"postgres", "delta", "spark"},
        owners=list(site.owners),
        tags=site.tags,
        pool=pool,
        required_resource_keys={spark_key(site)},
        # The function reports each partition as soon as it is in the lake, not at the end of the step.
        output_required=False,
        description=description,
    )
