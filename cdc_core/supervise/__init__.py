"""Supervised runs: a connector's snapshot and stream, and both again after a fault that passes.

``Service`` is one run, for one thread, until it is stopped or reaches its limits; it calls ``ServiceHooks`` as it
proceeds. Each attempt begins at what is durable, with the checks of a first start; an error that waits for an operator
ends the run. ``ConnectorGroup`` is several runs in threads of one process, which calls ``GroupHooks``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.supervise.group import ConnectorGroup as ConnectorGroup
    from cdc_core.supervise.group import GroupHooks as GroupHooks
    from cdc_core.supervise.service import Service as Service
    from cdc_core.supervise.service import ServiceHooks as ServiceHooks

lazily(
    __name__,
    {
        "ConnectorGroup": "group",
        "GroupHooks": "group",
        "Service": "service",
        "ServiceHooks": "service",
    },
)
