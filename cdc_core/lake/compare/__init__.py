"""A lake table compared with rows of its source, change by change, and rows written where they differ."""
