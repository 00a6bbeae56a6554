"""Creates a running pipeline from a connector file: the only package that imports all others.

``Connector`` is one connector and its operations: check, snapshot, run, status, reconcile and so on. ``meter`` are
the metrics of a connector.

Each operation opens and closes its own connections. A ``Connector`` may be used by several threads; two runs into one
lake exclude each other. Operations load the libraries that they need when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.assemble.connector import Connector as Connector
    from cdc_core.assemble.metrics import meter as meter

lazily(
    __name__,
    {
        "Connector": "connector",
        "meter": "metrics",
    },
)
