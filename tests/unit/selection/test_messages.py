"""Which logical messages and operations become events."""

import pytest

from cdc_core.selection.messages import MessageSelection
from cdc_core.selection.options import SelectionOptions


@pytest.mark.parametrize(
    ("prefix", "options", "captured"),
    [
        ("audit", {}, True),
        ("audit", {"message_prefix_include_list": ("Audit", "x")}, True),
        ("audit2", {"message_prefix_include_list": ("audit",)}, False),
        ("audit", {"message_prefix_exclude_list": ("audit.*",)}, False),
        ("other", {"message_prefix_exclude_list": ("audit.*",)}, True),
        ("", {"message_prefix_include_list": (".*",)}, True),
    ],
)
def test_prefixes_are_matched_whole(prefix, options, captured):
    selection = MessageSelection(SelectionOptions(**options))
    assert selection.includes(prefix) is captured
    assert selection.includes(prefix) is captured
