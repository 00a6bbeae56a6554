"""Operation ``reset``: removes what a connector has made, so that nothing of it is left on the server.

The lake's tables are somebody's data, and are kept unless they are asked for. A publication is removed where this role
owns it and the connector file lets wal2lake make it; one that somebody else made is kept.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.signals.own_file import own_signals, reconcile_journal
from cdc_core.engine import ReachedFile, RereadsFile, WaitingFile
from cdc_core.errors import LakeError
from cdc_core.postgres import connect, publication
from cdc_core.postgres import slot as slots


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What ``reset`` removes, in its order. ``publication`` and ``lake`` are empty if they are kept.

    ``kept_publication``: why it is kept, empty if there is none or it is removed.
    """

    slot: str
    publication: str
    kept_publication: str
    state: tuple[Path, ...]
    lake: str

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.slot or self.publication or self.state or self.lake)


def leftovers(context: RunContext, *, with_lake: bool) -> Leftovers:
    """Return what there is to remove. Raises SourceError, TransientError; InUseError while a run uses the slot."""
    folders = [destination.folder for destination in context.destinations] if with_lake else []
    with context.claimed() as source:
        slot = source.slot()
        if slot.active:
            raise slots.in_use(slot.name, slot.active_pid)
    name, why = publication.removable(context.config.postgres)
    return Leftovers(
        context.slot if slot.exists else "",
        name,
        why,
        tuple(_state(context)),
        next((str(f) for f in folders if f), ""),
    )


def reset(context: RunContext, to_remove: Leftovers) -> None:
    """Remove it. Raises SourceError, TransientError or LakeError; what was removed before stays removed."""
    with context.claimed() as source:
        if to_remove.slot:
            source.drop_slot()
    with connect(context.config.postgres) as connection:
        if to_remove.publication:
            publication.drop(connection, to_remove.publication)
    for path in to_remove.state:
        _remove(path)
    if to_remove.lake:
        _remove(Path(to_remove.lake))
    with suppress(OSError):
        context.config.state_path.rmdir()


def _state(context: RunContext) -> Iterator[Path]:
    """Yield the connector's files in the state folder, which other connectors may share; its own folder as a whole."""
    config = context.config
    folder = config.state_path.resolve()
    if not config.engine.state_path and folder.is_dir():
        yield folder
        return
    files = (
        own_signals(context.config),
        reconcile_journal(context.config),
        WaitingFile(folder, context.name, context.slot).path,
        RereadsFile(folder, context.name, context.slot).path,
        ReachedFile(folder, context.name, context.slot, "").path,
    )
    yield from (file for file in files if file.exists())
    spool = folder / "spool"
    yield from sorted(spool.glob(f"{context.name}-*")) if spool.is_dir() else ()


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise LakeError(f"{path} cannot be removed: {error.strerror}.", "Remove it by hand.") from None
