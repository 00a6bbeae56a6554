"""Older names of transforms' classes and properties, as files for Debezium 1.x and 2.x have them.

Each is replaced by the present name, with a warning. If both are set, the present name has precedence, as in Debezium.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdc_core.errors import ConfigError

_DEBEZIUM = "io.debezium.transforms."
UNWRAP = f"{_DEBEZIUM}ExtractNewRecordState"
CLASSES = {f"{_DEBEZIUM}UnwrapFromEnvelope": UNWRAP}
_RENAMED = {
    f"{_DEBEZIUM}outbox.EventRouter": {
        "debezium.op.invalid.behavior": "table.op.invalid.behavior",
        "table.field.payload": "table.field.event.payload",
        "table.field.payload.id": "table.field.event.key",
        "table.field.event.payload.id": "table.field.event.key",
        "table.field.schema.version": "table.field.event.schema.version",
    },
    "org.apache.kafka.connect.transforms.ReplaceField": {"blacklist": "exclude", "whitelist": "include"},
}
# (delete.handling.mode, drop.tombstones) → delete.tombstone.handling.mode. With a topic that keeps the last record of
# a key alone, each delete leaves the same: one that is null, one that is rewritten, or nothing.
_DELETES = {
    ("drop", True): "drop",
    ("drop", False): "tombstone",
    ("none", True): "tombstone",
    ("none", False): "tombstone",
    ("rewrite", True): "rewrite",
    ("rewrite", False): "rewrite-with-tombstone",
}
_MODE = "delete.tombstone.handling.mode"


def replace_older(prefix: str, values: dict[str, str]) -> list[str]:
    """Replace older names in the properties of one transform, in place; return one sentence for each.

    Raises ConfigError for a value that the older property does not have.
    """
    said = []
    current = CLASSES.get(values.get("type", "").strip())
    if current is not None:
        said.append(f"{prefix}.type: {values['type']} is the older name of {current}.")
        values["type"] = current
    kind = values.get("type", "").strip()
    for older, name in _RENAMED.get(kind.partition("$")[0], {}).items():
        if older in values:
            said.append(_replaced(prefix, values, older, name, values[older]))
    return [*said, *(_of_unwrap(prefix, values) if kind == UNWRAP else ())]


def _replaced(prefix: str, values: dict[str, str], older: str, name: str, text: str) -> str:
    del values[older]
    if name in values:
        return f"{prefix}.{older}: no effect, because {prefix}.{name}, which replaced it, is set too."
    values[name] = text
    return f"{prefix}.{older}: replaced by {prefix}.{name}={text}."


def _of_unwrap(prefix: str, values: dict[str, str]) -> Iterator[str]:
    if values.get("drop.deletes"):
        values.setdefault("delete.handling.mode", "drop" if _flag(prefix, values, "drop.deletes", True) else "none")
    older = [name for name in ("drop.deletes", "delete.handling.mode", "drop.tombstones") if name in values]
    if older:
        mode = (values.get("delete.handling.mode") or "drop").strip().lower()
        drops = _flag(prefix, values, "drop.tombstones", True)
        if (mode, drops) not in _DELETES:
            raise ConfigError(
                f"{prefix}.delete.handling.mode is {mode!r}: expected one of drop, rewrite, none.",
                f"Set {prefix}.{_MODE}, which replaced it.",
            )
        for name in older[1:]:
            del values[name]
        names = f" and {prefix}.".join(older)
        yield _replaced(prefix, values, older[0], _MODE, _DELETES[mode, drops]).replace(older[0], names, 1)
    if "add.source.fields" in values:
        yield _added(prefix, values, "add.source.fields", "add.fields", values.pop("add.source.fields"))
    if _flag(prefix, values, "operation.header", False):
        del values["operation.header"]
        yield _added(prefix, values, "operation.header", "add.headers", "op")


def _added(prefix: str, values: dict[str, str], older: str, name: str, text: str) -> str:
    values[name] = ",".join(filter(None, (values.get(name), text)))
    return f"{prefix}.{older}: replaced by {prefix}.{name}={values[name]}."


def _flag(prefix: str, values: dict[str, str], name: str, default: bool) -> bool:
    text = values.get(name, "").strip().lower()
    if text not in ("", "true", "false"):
        raise ConfigError(f"{prefix}.{name} is {values[name]!r}: expected true or false.")
    return default if not text else text == "true"
