"""A connector file → a running pipeline: the one place where all rooms meet."""

from cdc_core.assemble.connector import Connector, OnProgress
from cdc_core.assemble.news import SlotNews

__all__ = ["Connector", "OnProgress", "SlotNews"]
