"""Single message transforms by their Kafka Connect names: Debezium's and Kafka's own, on batches of records."""
