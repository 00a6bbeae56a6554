"""Dagster definitions of wal2lake: assets, checks, sensors, schedules and jobs, generated from connector files.

They call the engine (``cdc_core.assemble.Connector``) and convert its reports; they contain no capture logic. Importing
this package raises ImportError if the extra ``dagster`` is not installed.
"""

from cdc_core.errors import ConfigError
from cdc_core.extras import require

try:
    require("dagster", "wal2lake.pipelines")
except ConfigError as error:
    raise ImportError(str(error)) from None
