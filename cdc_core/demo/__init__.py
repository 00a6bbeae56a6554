"""The demo: a small shop on an embedded PostgreSQL with a workload, captured by the complete pipeline.

``Demo`` runs it, with or without a ``Broker``, and calls ``DemoHooks`` as it proceeds; ``DemoState`` is where its
files and processes are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.demo.broker import Broker as Broker
    from cdc_core.demo.run import Demo as Demo
    from cdc_core.demo.run import DemoHooks as DemoHooks
    from cdc_core.demo.run import DemoState as DemoState

lazily(
    __name__,
    {
        "Broker": "broker",
        "Demo": "run",
        "DemoHooks": "run",
        "DemoState": "run",
    },
)
