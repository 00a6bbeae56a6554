"""The version of wal2lake, and of the Debezium whose events it writes."""

__version__ = "0.1.0"

# What source.version says in an event: ours, with the contract that it follows.
DEBEZIUM_CONTRACT = "3.6.3"
EVENT_VERSION = f"{DEBEZIUM_CONTRACT}.wal2lake-{__version__}"
