"""The catalogs of a connector file."""

from __future__ import annotations

from cdc_core.catalogs.entry import CatalogClient
from cdc_core.catalogs.options import CatalogOptions
from cdc_core.errors import ConfigError
from cdc_core.extras import require
from cdc_core.outbox import DeliveryError


def opened_catalogs(options: CatalogOptions, lake: str) -> list[CatalogClient]:
    """Return the catalogs of ``wal2lake.catalogs``; ``lake`` is the folder of the connector's lake.

    No request is made: a catalog that is away is no error here. Raises ConfigError if the settings of one are not
    complete.
    """
    catalogs: list[CatalogClient] = []
    if "glue" in options.catalogs:
        require("glue", "wal2lake.catalogs=glue")
        from cdc_core.catalogs.glue import GlueCatalog

        try:
            catalogs.append(GlueCatalog(lake))
        except DeliveryError as error:
            raise ConfigError(
                f"wal2lake.catalogs has glue, and AWS's settings have no region or are not complete: {error}.",
                "Set AWS_REGION, or AWS_PROFILE.",
            ) from None
    if "unity" in options.catalogs:
        from cdc_core.catalogs.unity import UnityCatalog

        url = options.catalogs_unity_url
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                "wal2lake.catalogs has unity, and wal2lake.catalogs.unity.url is no HTTP or HTTPS address.",
                "Set it to the address of the server.",
            )
        catalogs.append(UnityCatalog(url, options.catalogs_unity_token, options.catalogs_unity_catalog, lake))
    return catalogs
