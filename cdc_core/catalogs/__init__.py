"""Catalogs in which lake tables are registered without Spark: AWS Glue and Unity Catalog.

``CatalogOptions`` are the settings. ``opened_catalogs`` returns the ``CatalogClient`` objects of a connector,
``NamePatterns`` name a ``CatalogEntry`` (``EntryName``), a ``Registrar`` keeps a catalog equal to what a run knows.

A registrar never waits and never fails a run: a catalog that is away gets what it missed once it is back, or from the
next run. Entries are metadata: no file of a table is changed or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.catalogs.entry import CatalogClient as CatalogClient
    from cdc_core.catalogs.entry import CatalogEntry as CatalogEntry
    from cdc_core.catalogs.entry import EntryName as EntryName
    from cdc_core.catalogs.entry import NamePatterns as NamePatterns
    from cdc_core.catalogs.opening import opened_catalogs as opened_catalogs
    from cdc_core.catalogs.options import CatalogOptions as CatalogOptions
    from cdc_core.catalogs.registrar import Registrar as Registrar

lazily(
    __name__,
    {
        "CatalogClient": "entry",
        "CatalogEntry": "entry",
        "CatalogOptions": "options",
        "EntryName": "entry",
        "NamePatterns": "entry",
        "Registrar": "registrar",
        "opened_catalogs": "opening",
    },
)
