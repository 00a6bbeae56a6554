"""The destinations of ``wal2lake.sinks``: one module for each, loaded by the runs that write to it."""
