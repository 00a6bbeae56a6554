"""The lake: changelog and tables in Delta format, each commit with its position."""
