"""Delta's format without a JVM: logs, data files, and their statistics."""
