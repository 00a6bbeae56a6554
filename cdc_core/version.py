"""The version of wal2lake, and of the Debezium version whose events it writes."""

__version__ = "0.1.0"

# The value of source.version in an event: wal2lake's version, with the Debezium version.
DEBEZIUM_CONTRACT = "3.6.3"
EVENT_VERSION = f"{DEBEZIUM_CONTRACT}.wal2lake-{__version__}"
