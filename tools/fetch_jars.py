"""Resolves Delta Lake's jars once, by starting and ending a Spark session, and archives the classes. Run by setup."""

import subprocess

from cdc_core.spark import make_class_archive
from cdc_core.spark.session import get_session


def main() -> None:
    """Start a session, which resolves the jars, and stop it; then make the archive, without which all works, too."""
    session = get_session({})
    session.range(1).count()
    session.stop()
    try:
        make_class_archive.main()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"No archive of classes was made, so Spark starts slower: {error}")


if __name__ == "__main__":
    main()
