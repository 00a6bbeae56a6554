"""The placeholder of an unchanged TOAST value: one setting, as text and as bytes."""

from __future__ import annotations

from cdc_core.types.options import TypeOptions


def placeholder_bytes(options: TypeOptions) -> bytes:
    """Return the octets of ``unavailable.value.placeholder``: of its text, or its hexadecimal digits after ``hex:``."""
    value = options.unavailable_value_placeholder
    return bytes.fromhex(value[4:]) if value.startswith("hex:") else value.encode()


def placeholder_text(options: TypeOptions) -> str:
    """Return those octets as text."""
    return placeholder_bytes(options).decode("utf-8", errors="replace")
