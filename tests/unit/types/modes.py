"""The handling modes under which every type is tried."""

from __future__ import annotations

from cdc_core.types.options import (
    BinaryHandlingMode,
    DecimalHandlingMode,
    HstoreHandlingMode,
    IntervalHandlingMode,
    TimePrecisionMode,
    TypeOptions,
)

MODES = (
    *(TypeOptions(time_precision_mode=mode, include_unknown_datatypes=True) for mode in TimePrecisionMode),
    *(TypeOptions(decimal_handling_mode=mode, money_fraction_digits=3) for mode in DecimalHandlingMode),
    *(TypeOptions(binary_handling_mode=mode, include_unknown_datatypes=True) for mode in BinaryHandlingMode),
    TypeOptions(interval_handling_mode=IntervalHandlingMode.STRING, hstore_handling_mode=HstoreHandlingMode.MAP),
    TypeOptions(money_fraction_digits=0),
)
