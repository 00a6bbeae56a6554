"""PostgreSQL change data capture into Delta Lake, with Debezium's events. See `cdc_core/README.md` for a diagram."""
