"""Change events as Debezium's records, and where they go: JSON lines or Kafka."""
