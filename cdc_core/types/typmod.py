"""Type modifiers (pg_attribute.atttypmod), for the types that have one. -1 means none.

Source: numerictypmodin, anybit_typmodin and the time types' typmodin of PostgreSQL 15.
"""

from __future__ import annotations

_HEADER = 4  # VARHDRSZ, which numeric modifiers include
UNBOUNDED_BITS = 2147483647


def numeric_precision_scale(modifier: int) -> tuple[int, int] | None:
    """Return (precision, scale) of ``numeric(p,s)``, None for plain ``numeric``. The scale is signed: -1000 to 1000."""
    if modifier < _HEADER:
        return None
    packed = modifier - _HEADER
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


def bit_length(modifier: int) -> int:
    """Return n of ``bit(n)`` or ``varbit(n)``; 2147483647 for a varbit without length."""
    return modifier if modifier > 0 else UNBOUNDED_BITS


def event_scale(scale: int) -> int:
    """Return the scale that Debezium's driver reads from the modifier: its 11 bits without a sign, so -2 is 2046."""
    return scale & 0x7FF


def fraction_digits(modifier: int) -> int | None:
    """Return p of ``time(p)``, ``timestamp(p)`` and their variants with time zone, None without."""
    return modifier if modifier >= 0 else None
