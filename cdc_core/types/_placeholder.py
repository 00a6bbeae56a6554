"""What stands for an unchanged TOAST value: one setting, as text and as bytes."""

from __future__ import annotations

from cdc_core.types.options import TypeOptions


def placeholder_bytes(options: TypeOptions) -> bytes:
    """The octets of ``unavailable.value.placeholder``: of its text, or those that ``hex:`` spells."""
    value = options.unavailable_value_placeholder
    return bytes.fromhex(value[4:]) if value.startswith("hex:") else value.encode()


def placeholder_text(options: TypeOptions) -> str:
    """Those octets as text."""
    return placeholder_bytes(options).decode("utf-8", errors="replace")
