"""Selection of logical messages and operations."""

from __future__ import annotations

from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.patterns import compile_all, matches_any


class MessageSelection:
    """The lists of message prefixes. The exclude list is ignored if there is an include list."""

    def __init__(self, options: SelectionOptions) -> None:
        self._included = compile_all(options.message_prefix_include_list)
        self._excluded = compile_all(options.message_prefix_exclude_list)
        self._known: dict[str, bool] = {}

    def includes(self, prefix: str) -> bool:
        """Whether messages of that prefix are captured."""
        known = self._known.get(prefix)
        if known is None:
            in_list = matches_any(self._included or self._excluded, prefix)
            known = self._known[prefix] = in_list if self._included else not in_list
        return known
