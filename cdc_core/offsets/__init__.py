"""The offsets of Kafka Connect in which Debezium's connector keeps its position, and what follows from one."""
