"""Write docs/configuration.md from the declarations; with --check, fail where the page is not what they say."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "configuration.md"


def main(arguments: list[str]) -> int:
    """0 when the page is (or was made) right, 1 when --check finds it is not, 2 for wrong use."""
    if arguments not in ([], ["--check"]):
        print("usage: gen_configuration_doc.py [--check]", file=sys.stderr)
        return 2
    # The script runs from a checkout, installed or not.
    sys.path.insert(0, str(ROOT))
    from cdc_core.config.document import configuration_page

    page = configuration_page()
    if arguments:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page:
            return 0
        print("docs/configuration.md is not what the declarations say: run tools/gen_configuration_doc.py.")
        return 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
