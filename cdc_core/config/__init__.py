"""The connector file: read, checked and explained.

``load`` reads a file into a ``ConnectorConfig``, which has the options of every package as typed values;
``from_entries`` does the same for entries that are not in a file, ``file_entries`` returns a file's entries.
``explain`` returns each property with its value and its effect (``ExplainRow``). ``effects_check``
and ``say_effects`` say what in it has no effect on a server: names that match nothing, masks that change nothing.
``check_together`` refuses files that cannot run in one process.

Reading a file connects to nothing and loads neither Spark nor Dagster. A value that is not valid raises ConfigError
with the property's name, never with the value of a password. The result is immutable.

Not behind this door: the options themselves, each of which is defined in the package that obeys it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.config.connector import ConnectorConfig as ConnectorConfig
    from cdc_core.config.connector import file_entries as file_entries
    from cdc_core.config.connector import from_entries as from_entries
    from cdc_core.config.connector import load as load
    from cdc_core.config.effects import effects_check as effects_check
    from cdc_core.config.effects import say_effects as say_effects
    from cdc_core.config.explanation import ExplainRow as ExplainRow
    from cdc_core.config.explanation import explain as explain
    from cdc_core.config.together import check_together as check_together

lazily(
    __name__,
    {
        "ConnectorConfig": "connector",
        "ExplainRow": "explanation",
        "check_together": "together",
        "effects_check": "effects",
        "explain": "explanation",
        "file_entries": "connector",
        "from_entries": "connector",
        "load": "connector",
        "say_effects": "effects",
    },
)
