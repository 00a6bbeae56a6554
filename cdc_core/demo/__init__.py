"""The demo: a small shop on an embedded PostgreSQL, kept busy, and the whole product at work on it."""
