"""Kafka Connect's offsets, in which Debezium's connector keeps its position, and what follows from one.

``DebeziumOffset`` is one offset, ``offset_json`` its text. ``from_text``, ``read_map``, ``write_map``, ``is_map`` and
``choose`` read and write the places in which Connect stores offsets (``StoredOffset``), of at most ``MOST_BYTES``.
``Delivered`` says which changes another connector has delivered, and ``DeliveredPart`` of which transaction only a
part; ``Adoption`` where a lake continues it. A destination takes an offset over (``SlotOffer``, ``Takeover``), and says
where its own stream ends (``StreamEnd``, ``FINISH``). ``AdoptReport`` and ``HandBack`` are reports.

All are pure functions and values; reading Kafka or a server is the caller's. Text that is not an offset raises
ConfigError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.offsets.delivered import Adoption as Adoption
    from cdc_core.offsets.delivered import Delivered as Delivered
    from cdc_core.offsets.delivered import DeliveredPart as DeliveredPart
    from cdc_core.offsets.entries import StoredOffset as StoredOffset
    from cdc_core.offsets.entries import choose as choose
    from cdc_core.offsets.entries import from_text as from_text
    from cdc_core.offsets.java_map import MOST_BYTES as MOST_BYTES
    from cdc_core.offsets.java_map import is_map as is_map
    from cdc_core.offsets.java_map import read_map as read_map
    from cdc_core.offsets.java_map import write_map as write_map
    from cdc_core.offsets.offset import DebeziumOffset as DebeziumOffset
    from cdc_core.offsets.offset import offset_json as offset_json
    from cdc_core.offsets.reports import AdoptReport as AdoptReport
    from cdc_core.offsets.reports import HandBack as HandBack
    from cdc_core.offsets.takeover import FINISH as FINISH
    from cdc_core.offsets.takeover import SlotOffer as SlotOffer
    from cdc_core.offsets.takeover import StreamEnd as StreamEnd
    from cdc_core.offsets.takeover import Takeover as Takeover

lazily(
    __name__,
    {
        "AdoptReport": "reports",
        "Adoption": "delivered",
        "DebeziumOffset": "offset",
        "Delivered": "delivered",
        "DeliveredPart": "delivered",
        "FINISH": "takeover",
        "HandBack": "reports",
        "MOST_BYTES": "java_map",
        "SlotOffer": "takeover",
        "StoredOffset": "entries",
        "StreamEnd": "takeover",
        "Takeover": "takeover",
        "choose": "entries",
        "from_text": "entries",
        "is_map": "java_map",
        "offset_json": "offset",
        "read_map": "java_map",
        "write_map": "java_map",
    },
)
