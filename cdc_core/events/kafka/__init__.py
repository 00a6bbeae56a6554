"""Kafka as a destination of events, and as a channel of signals and notifications."""
