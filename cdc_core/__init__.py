"""PostgreSQL change data capture into Delta Lake, with Debezium's events. `cdc_core/README.md` has the drawing."""
