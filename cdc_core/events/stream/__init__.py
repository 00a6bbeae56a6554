"""Debezium's records as lines of a file, without Spark and without a lake."""
