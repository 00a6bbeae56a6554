"""``wal2lake adopt`` and ``wal2lake offsets``: a slot taken over from Debezium's connector, and handed back to it."""

from __future__ import annotations

from pathlib import Path

import click

from cdc_core.cli.arguments import ConnectorFile, config_argument
from cdc_core.cli.exits import DONE
from cdc_core.errors import ConfigError
from cdc_core.offsets import HandBack, is_map, read_map, write_map
from cdc_core.private_files import write_private


@click.command("adopt", short_help="Take over the slot of a Debezium connector.")
@config_argument
@click.option(
    "--offsets",
    default="",
    metavar="FILE|topic[:NAME]|JSON",
    help="Debezium's offset: a file of FileOffsetBackingStore, a topic of Connect's offsets (default name: "
    "connect-offsets), or JSON. Default: the file of offset.storage.file.filename.",
)
@click.option("--bootstrap-servers", default="", metavar="HOST:PORT", help="Brokers of that topic.")
@click.option("--lake", type=click.Choice(["snapshot"]), help="Fill the lake by a snapshot (the default).")
@click.option("--events-only", is_flag=True, help="Read no rows: begin after the last event that Debezium sent.")
@click.option("--accept-gap", is_flag=True, help="Continue from the slot, although it is past the offset.")
@click.option("--dry-run", is_flag=True, help="Only check, and show what would be done.")
def command(
    config: ConnectorFile,
    offsets: str,
    bootstrap_servers: str,
    lake: str | None,
    events_only: bool,
    accept_gap: bool,
    dry_run: bool,
) -> int:
    """Take a replication slot over from Debezium's connector, which must be stopped.

    CONFIG is Debezium's own connector file, with wal2lake's properties. The offset that Connect has stored is compared
    with the slot; no changes may lie between. The next wal2lake run continues there: Kafka gets the events after the
    last one that Debezium sent, also inside a transaction; the lake is filled by a snapshot, or gets the same events
    with --events-only. Nothing is changed at the source.
    """
    if lake and events_only:
        raise click.UsageError("--lake snapshot and --events-only exclude each other.")
    report = config.open().adopt(
        offsets,
        fills=not events_only,
        accepts_gap=accept_gap,
        bootstrap_servers=bootstrap_servers,
        writes=not dry_run,
    )
    for line in report.found:
        click.echo(f"found    {line}")
    for line in report.decided:
        click.echo(f"decided  {line}")
    if report.is_new:
        click.echo("Nothing was written (--dry-run)." if dry_run else f"Adopted. Continue with: wal2lake run {config}")
    return DONE


@click.command("offsets", short_help="Print the offset from which Debezium continues.")
@config_argument
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "connect", "file"]),
    default="json",
    show_default=True,
    help="The offset; key and value as Connect stores them; or a file of FileOffsetBackingStore.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write, with --format file; offsets of other connectors in it are kept.",
)
@click.option("--name", default="", help="The connector's name in Connect. Default: name of CONFIG.")
def offsets_command(config: ConnectorFile, form: str, output: Path | None, name: str) -> int:
    """Print the offset with which Debezium's connector continues after wal2lake. No run may be active.

    It contains lsn, lsn_proc and lsn_commit, and the last transaction if it is known. With --format connect: a line
    with key and value, separated by a tab, for the topic of Connect's offsets or its REST interface.
    """
    if (form == "file") != (output is not None):
        raise click.UsageError("--format file needs --output FILE, and no other format takes it.")
    hand_back = config.open().offsets(name)
    if output is not None:
        try:
            _write(output, hand_back)
        except OSError as error:
            raise ConfigError(
                f"{output} cannot be written: {error.strerror or error}.", "Give another --output."
            ) from None
        click.echo(f"{output}: the offset of connector {hand_back.connector}, at {hand_back.lsn}", err=True)
    else:
        click.echo(hand_back.offset if form == "json" else f"{hand_back.key}\t{hand_back.offset}")
    for note in hand_back.notes:
        click.echo(note, err=True)
    return DONE


def _write(path: Path, hand_back: HandBack) -> None:
    """Write a file of offsets as a whole, or not at all."""
    data = hand_back.file()
    if path.exists() and path.stat().st_size:
        before = path.read_bytes()
        if not is_map(before):
            raise ConfigError(f"{path} exists and is no file of offsets.", "Give another --output.")
        key = hand_back.key.encode()
        others = [
            (other_key, value)
            for other_key, value in read_map(before, str(path))
            if other_key != key and value is not None
        ]
        data = write_map([*others, (key, hand_back.offset.encode())])
    write_private(path, data)
