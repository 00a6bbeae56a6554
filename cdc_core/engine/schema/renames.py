"""Follows tables through renames: changes under one name are missing in the lake table of another.

A lake table belongs to a name, and the source's table is identified by its oid. Relation messages contain both. If a
message announces the table that a lake table was read from under another name, the changes that follow are stored
under that name, or nowhere; so the first name's lake table must be re-read before it is used again:

    the name exists          it is re-read now
    the name does not exist  the re-read is recorded and made once the name exists again
    the name is paused       the re-read is recorded and made when it is resumed

This also holds for names that this run has not opened because they did not exist when it began. Everything is recorded
in the schema version log before the slot's position is advanced past the message, so a later run does not depend on it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from cdc_core.engine.reading.tables import SeenName
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses

_log = logging.getLogger(__name__)


def note_names(tables: KnownTables, pauses: Pauses, seen: Iterable[SeenName]) -> None:
    """Record re-reads of the lake tables that lack the changes of tables announced under other names.

    ``seen`` is in the order of the stream. Raises SourceError or TransientError.
    """
    identified = [seen_name for seen_name in seen if seen_name.oid]
    holders = tables.holders({seen_name.oid for seen_name in identified}) if identified else {}
    for seen_name in identified:
        for table in holders.get(seen_name.oid, ()):
            if table != seen_name.name:
                pauses.owe_reread(table, f"it was changed while its name was {seen_name.name}")
            elif not seen_name.is_captured:
                pauses.owe_reread(table, "it was changed while it was not captured")
    if identified:
        pauses.find_returned()
