"""A connector file → a running pipeline: the one place where all rooms meet."""

from cdc_core.assemble.connector import Connector
from cdc_core.assemble.news import SlotNews
from cdc_core.assemble.taking import OnProgress

__all__ = ["Connector", "OnProgress", "SlotNews"]
