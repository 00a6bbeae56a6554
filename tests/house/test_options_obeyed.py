"""A property that is said to be supported is read by some code outside of its declaration."""

from __future__ import annotations

import re
from pathlib import Path

from cdc_core.config.catalogue import PACKAGES
from cdc_core.option import PropertyStatus, properties_of

ROOT = Path(__file__).parents[2]


def _code() -> str:
    """All code but the declarations; of these only what their methods read of themselves."""
    texts = []
    # What only Dagster does is obeyed in pipelines.
    for path in (path for package in ("cdc_core", "pipelines") for path in (ROOT / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name == "options.py":
            texts += re.findall(r"self\.\w+", text)
        elif path.parent.name != "config":
            texts.append(text)
    return "\n".join(texts)


def test_every_supported_property_is_read_somewhere() -> None:
    words = set(re.findall(r"\w+", _code()))
    unread = [
        declared.name
        for _, options in PACKAGES.values()
        for field, declared in properties_of(options).items()
        if declared.status is PropertyStatus.SUPPORTED and field not in words
    ]
    assert not unread, f"declared as supported, yet nothing reads them: {', '.join(unread)}"


def test_every_other_property_says_why() -> None:
    silent = [
        declared.name
        for _, options in PACKAGES.values()
        for declared in properties_of(options).values()
        if declared.status is not PropertyStatus.SUPPORTED and not declared.reason
    ]
    assert not silent
