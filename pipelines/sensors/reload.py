"""Has the code location of a sensor loaded again, so that tables captured since appear without a press."""

from __future__ import annotations

import logging
import threading
import time

import dagster as dg

_SECONDS = 180
# The tick's answer goes out before its process is replaced.
_AFTER_SECONDS = 1.0

_log = logging.getLogger(__name__)


def reload_soon(context: dg.SensorEvaluationContext) -> bool:
    """Ask the code server to load the definitions again. Returns False if it does not support that.

    ``dagster dev`` and ``dagster code-server start`` can; a server that the daemon started by itself (``-m``) cannot,
    nor can ``dagster api grpc``, which must be restarted.
    """
    create_client = getattr(context.code_location_origin, "create_client", None)
    if create_client is None:
        return False

    def ask() -> None:
        time.sleep(_AFTER_SECONDS)
        try:
            create_client().reload_code(timeout=_SECONDS)
        except Exception as error:  # the tables are shown after the next reload
            _log.warning("The code location could not be reloaded: %s.", type(error).__name__)

    threading.Thread(target=ask, name="wal2lake-reload", daemon=True).start()
    return True
