"""Which types of the lake hold all values of others."""

from __future__ import annotations

import pyarrow as pa

_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def holds(existing: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of ``new`` can be cast to ``existing`` without changing it."""
    if existing.equals(new):
        return True
    if pa.types.is_list(existing) and pa.types.is_list(new):
        return holds(existing.value_type, new.value_type)
    if pa.types.is_decimal(existing):
        whole = existing.precision - existing.scale
        if pa.types.is_decimal(new):
            return bool(whole >= new.precision - new.scale and existing.scale >= new.scale)
        return new in _DIGITS and whole >= _DIGITS[new]
    numbers = existing in _DIGITS and new in _DIGITS and _DIGITS[existing] >= _DIGITS[new]
    floats = pa.types.is_float64(existing) and (pa.types.is_float32(new) or new in (pa.int8(), pa.int16(), pa.int32()))
    return numbers or floats or (pa.types.is_timestamp(existing) and existing.tz is None and pa.types.is_date(new))
