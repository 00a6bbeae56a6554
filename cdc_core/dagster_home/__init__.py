"""The settings of a Dagster instance; links at the top level lead to the files.

``write_home`` writes them into a folder. ``INSTANCE``, ``WORKSPACE`` and ``CONNECTORS`` are the names of the files and
of the folder of connectors; ``shipped`` returns a file's content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.dagster_home.write import CONNECTORS as CONNECTORS
    from cdc_core.dagster_home.write import INSTANCE as INSTANCE
    from cdc_core.dagster_home.write import WORKSPACE as WORKSPACE
    from cdc_core.dagster_home.write import shipped as shipped
    from cdc_core.dagster_home.write import write_home as write_home

lazily(
    __name__,
    {
        "CONNECTORS": "write",
        "INSTANCE": "write",
        "WORKSPACE": "write",
        "shipped": "write",
        "write_home": "write",
    },
)
