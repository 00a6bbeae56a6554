"""Which ranges of which tables are read, and when."""
