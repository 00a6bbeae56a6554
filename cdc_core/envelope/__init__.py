"""Typed columns → Debezium's records: keys, envelopes, tombstones, transaction metadata, heartbeats."""
