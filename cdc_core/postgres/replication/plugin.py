"""The parameters of each output plug-in, and which messages it sends."""

from __future__ import annotations

import json
import re

from cdc_core.errors import ConfigError
from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.schema import PublicationEntry, PublicationMark

# Parameters that change the bytes the decoder reads, and the only value of each that it supports.
_FIXED: dict[str, dict[str, str]] = {
    OutputPlugin.PGOUTPUT: {"proto_version": "1", "binary": "false", "streaming": "off", "two_phase": "off"},
    OutputPlugin.DECODERBUFS: {"debug-mode": "false"},
    OutputPlugin.WAL2JSON: {
        "pretty-print": "0",
        "write-in-chunks": "1",
        "include-xids": "1",
        "include-timestamp": "1",
        "include-lsn": "1",
        "include-schemas": "1",
        "include-types": "1",
        "include-type-oids": "1",
        "include-typmod": "1",
        "include-transaction": "1",
        "include-domain-data-type": "0",
    },
}
_INSTEAD = {
    "streaming": "Set wal2lake.streaming.transactions=on instead, which chooses the protocol version, too.",
}
# Parameters that leave changes out on the server, without a trace in the stream.
_FILTERS = ("actions", "add-tables", "filter-tables", "filter-origins", "origin")
_MEANS = {"on": "1", "true": "1", "t": "1", "yes": "1", "off": "0", "false": "0", "f": "0", "no": "0"}
_FORMAT = "format-version"
_IN_PROGRESS_FROM = 140000
# Of an update or delete of a table without a replica identity: format 2, and format 1, which has no schema.
_LEFT_OUT = re.compile(
    r'no (?:old )?tuple (?:identifier|data) for \w+ in table "(?P<schema>.*)"\."(?P<table>.*)"$'
    r'|(?:no tuple data for \w+ in )?table "(?P<name>.*?)"(?: without primary key or replica identity is nothing)?$',
    re.DOTALL,
)


def parameters(
    options: PostgresOptions, publication: str, version: int, *, in_progress: bool = False
) -> dict[str, str]:
    """Return the plug-in's parameters, with slot.stream.params; ``in_progress``: of a stream that may have transactions
    in progress, if the options ask for them.

    Raises ConfigError for one that cannot be decoded.
    """
    configured = checked(options.plugin_name, options.slot_stream_params)
    plugin = options.plugin_name.on_server
    if plugin == OutputPlugin.DECODERBUFS:
        return configured
    if plugin == OutputPlugin.WAL2JSON:
        chunks = {"write-in-chunks": "1"} if wal2json_format(options) == 1 else {}
        flags = ("include-xids", "include-timestamp", "include-lsn", "include-type-oids")
        return {_FORMAT: str(wal2json_format(options)), **chunks, **dict.fromkeys(flags, "1"), **configured}
    required = {"proto_version": "1", "publication_names": _quoted(publication)}
    if version >= 140000:
        required["messages"] = "true"
    if in_progress and options.sends_in_progress and version >= _IN_PROGRESS_FROM:
        required |= {"proto_version": "2", "streaming": "on"}
    return required | configured


def checked(plugin: OutputPlugin, pairs: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return slot.stream.params. Raises ConfigError for one that would change the stream's format."""
    fixed = _FIXED[plugin.on_server]
    for name, value in pairs:
        if name == "publication_names" and plugin.has_publication:
            raise ConfigError("slot.stream.params sets publication_names.", "Set publication.name instead.")
        required = fixed.get(name)
        if required is not None and _meaning(value) != _meaning(required):
            raise ConfigError(
                f"slot.stream.params sets {name}={value}, but only {name}={required} can be decoded.",
                _INSTEAD.get(name, "Remove it."),
            )
        if name == _FORMAT and plugin.on_server == OutputPlugin.WAL2JSON and value not in ("1", "2"):
            raise ConfigError(f"slot.stream.params sets {name}={value}.", f"Set {name}=1 or {name}=2.")
    return dict(pairs)


def wal2json_format(options: PostgresOptions) -> int:
    """Return the version of wal2json's format: 2 if slot.stream.params does not choose."""
    return int(dict(options.slot_stream_params).get(_FORMAT, "2"))


def sends_truncates(options: PostgresOptions) -> bool:
    """Whether the stream contains truncates, if the publication of pgoutput does not exclude them."""
    if options.plugin_name.has_publication:
        return True
    if options.plugin_name.on_server != OutputPlugin.WAL2JSON or wal2json_format(options) == 1:
        return False
    actions = dict(options.slot_stream_params).get("actions")
    return actions is None or "truncate" in actions


def filters(options: PostgresOptions) -> list[str]:
    """Return the names of parameters in slot.stream.params that leave changes of rows out on the server."""
    given = dict(options.slot_stream_params)
    needed = {"insert", "update", "delete"}
    acts = {one.strip() for one in given.get("actions", "insert,update,delete").split(",")}
    return [name for name in _FILTERS if name in given and not (name == "actions" and needed <= acts)]


def warns_of_changes(options: PostgresOptions) -> bool:
    """Whether the plug-in leaves out changes that it cannot describe, and sends a warning in their place."""
    return options.plugin_name.on_server == OutputPlugin.WAL2JSON


def left_out(warning: str) -> bytes | None:
    """Return a message in place of a change that wal2json left out with this warning; None for another warning.

    It has the form of the plug-in's own messages (``cdc_core.decode.wal2json.translate``).
    """
    found = _LEFT_OUT.match(warning)
    if found is None:
        return None
    names = {key: value for key, value in found.groupdict().items() if value is not None}
    return json.dumps({"action": "?", **names}, separators=(",", ":"), ensure_ascii=False).encode()


def sent(options: PostgresOptions) -> PublicationMark | None:
    """Return what a plug-in without publications sends: every table, with generated columns. None for pgoutput."""
    if options.plugin_name.has_publication:
        return None
    operations = "cudt" if sends_truncates(options) else "cud"
    return PublicationMark(0, options.plugin_name.on_server, operations, False, "s", (PublicationEntry("a", 0),))


def _meaning(value: str) -> str:
    return _MEANS.get(value.strip().lower(), value.strip())


def _quoted(name: str) -> str:
    """Quote an identifier for pgoutput's list of publications."""
    return '"' + name.replace('"', '""') + '"'
