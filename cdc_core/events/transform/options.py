"""Options of transforms."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.option import option


class ErrorTolerance(StrEnum):
    """``none``: stop at a record that cannot be transformed or written. ``all``: leave it out."""

    NONE = "none"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class TransformOptions:
    """Options of transforms. Their own properties are checked when the chain is created."""

    transforms: tuple[str, ...] = option(
        "transforms",
        (),
        "Names of the transforms of events, in the order in which they are applied. They do not apply to the lake.",
    )
    transform_settings: tuple[tuple[str, str], ...] = option(
        "transforms.NAME.*",
        (),
        "A transform's class (`type`), its predicate (`predicate`, `negate`) and its own properties.",
        parse=str,
        pattern=r"transforms\.(.+)",
    )
    predicates: tuple[str, ...] = option("predicates", (), "Names of the predicates that transforms refer to.")
    predicate_settings: tuple[tuple[str, str], ...] = option(
        "predicates.NAME.*",
        (),
        "A predicate's class (`type`) and its own properties.",
        parse=str,
        pattern=r"predicates\.(.+)",
    )
    errors_tolerance: ErrorTolerance = option(
        "errors.tolerance",
        ErrorTolerance.NONE,
        "What happens to an event that a transform or converter cannot process: none stops, all leaves it out.",
    )
