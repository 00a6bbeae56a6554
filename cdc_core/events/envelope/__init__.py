"""Converts typed columns to Debezium's records: keys, envelopes, tombstones, transaction metadata, heartbeats."""
