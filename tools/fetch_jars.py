"""Resolves Delta Lake's jars once, by starting and ending a Spark session. Run by setup."""

from cdc_core.spark.session import get_session


def main() -> None:
    """Start a session, which resolves the jars, and stop it."""
    session = get_session({})
    session.range(1).count()
    session.stop()


if __name__ == "__main__":
    main()
