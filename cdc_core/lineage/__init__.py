"""Lineage of runs as OpenLineage events, with the properties of Debezium's integration.

``LineageOptions`` are the settings. ``LineageRun`` sends the events of one run of a ``Job``: which source tables
(``SourceDatabase``) become which lake tables, with the rows ``Written`` and the ``MergedUpTo`` of the stream.
``opened_transport`` reads the file of transports and returns where events go.

Events are sent by a thread of an ``Outbox``: a receiver that is away costs events, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.lineage.datasets import SourceDatabase as SourceDatabase
    from cdc_core.lineage.datasets import Written as Written
    from cdc_core.lineage.options import LineageOptions as LineageOptions
    from cdc_core.lineage.run import Job as Job
    from cdc_core.lineage.run import LineageRun as LineageRun
    from cdc_core.lineage.run import MergedUpTo as MergedUpTo
    from cdc_core.lineage.settings import opened_transport as opened_transport

lazily(
    __name__,
    {
        "Job": "run",
        "LineageOptions": "options",
        "LineageRun": "run",
        "MergedUpTo": "run",
        "SourceDatabase": "datasets",
        "Written": "datasets",
        "opened_transport": "settings",
    },
)
