"""Delta Lake as a destination: changelog and tables, each commit with the position that it reaches."""
