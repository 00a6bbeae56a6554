"""Types, one file per family: converters from PostgreSQL's text to the lake's value and to the event's value.

``resolve`` returns the ``ColumnCodec`` of a column under ``TypeOptions`` (``FailureHandlingMode``,
``BinaryHandlingMode``): its ``NaturalConverter`` makes the lake's values, its ``EventConverter`` the event's, each
with what it ``Converted``. ``natural_type``, ``to_decimal`` and ``numeric_precision_scale`` are numeric's, of which
others need the details.

Converters are pure functions of Arrow columns, picklable and free of state; a value that a type cannot represent is
reported beside the column, not raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.types.codec import ColumnCodec as ColumnCodec
    from cdc_core.types.codec import Converted as Converted
    from cdc_core.types.codec import EventConverter as EventConverter
    from cdc_core.types.codec import NaturalConverter as NaturalConverter
    from cdc_core.types.numeric import natural_type as natural_type
    from cdc_core.types.numeric import to_decimal as to_decimal
    from cdc_core.types.options import BinaryHandlingMode as BinaryHandlingMode
    from cdc_core.types.options import FailureHandlingMode as FailureHandlingMode
    from cdc_core.types.options import TypeOptions as TypeOptions
    from cdc_core.types.registry import resolve as resolve
    from cdc_core.types.typmod import numeric_precision_scale as numeric_precision_scale

lazily(
    __name__,
    {
        "BinaryHandlingMode": "options",
        "ColumnCodec": "codec",
        "Converted": "codec",
        "EventConverter": "codec",
        "FailureHandlingMode": "options",
        "NaturalConverter": "codec",
        "TypeOptions": "options",
        "natural_type": "numeric",
        "numeric_precision_scale": "typmod",
        "resolve": "registry",
        "to_decimal": "numeric",
    },
)
