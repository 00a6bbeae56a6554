"""One table's part of a round, in a Spark task."""
