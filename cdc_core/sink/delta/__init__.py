"""The lake: changelog and tables as Delta, each commit with its position."""
