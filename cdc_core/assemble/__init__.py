"""Creates a running pipeline from a connector file: the only package that imports all others."""

from cdc_core.assemble.backlog import SlotBacklog
from cdc_core.assemble.connector import Connector
from cdc_core.assemble.operations.maintain import MaintainReport
from cdc_core.assemble.table_snapshots import OnProgress

__all__ = ["Connector", "MaintainReport", "OnProgress", "SlotBacklog"]
