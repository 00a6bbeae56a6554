"""Write docs/command-line.md from the commands' own help; with --check, fail where the page is not what they say."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "command-line.md"
_HEAD = """# Command line

<!-- Written by tools/gen_command_line_doc.py from the commands' own help. -->

What `wal2lake COMMAND --help` prints. CONFIG is a connector file. Exit codes: 0 success, 1 failure (with a message and
a remedy), 2 usage error; those of `reconcile` are below.

"""


def page() -> str:
    """The whole page."""
    import click

    from cdc_core.cli.program import cli

    context = click.Context(cli, info_name="wal2lake", max_content_width=110, terminal_width=110)
    parts = [_HEAD]
    commands = {name: command for name, command in cli.commands.items() if not isinstance(command, click.Group)}
    for group, found in cli.commands.items():
        if isinstance(found, click.Group):
            commands |= {f"{group} {name}": command for name, command in found.commands.items()}
    for name in sorted(commands):
        own = click.Context(commands[name], info_name=name, parent=context, max_content_width=110, terminal_width=110)
        parts.append(f"## {name}\n\n```text\n{commands[name].get_help(own).rstrip()}\n```\n\n")
    return "".join(parts).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """0 when the page is (or was made) right, 1 when --check finds it is not, 2 for wrong use."""
    if arguments not in ([], ["--check"]):
        print("usage: gen_command_line_doc.py [--check]", file=sys.stderr)
        return 2
    sys.path.insert(0, str(ROOT))
    found = page()
    if arguments:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == found:
            return 0
        print("docs/command-line.md is not what the commands say: run python -m tools.gen_command_line_doc.")
        return 1
    PAGE.write_text(found, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
