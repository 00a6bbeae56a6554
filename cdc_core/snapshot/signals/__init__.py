"""Signals to a running connector: from a table of the source, a file, or this process."""
