"""One file a family: PostgreSQL's text to the value a lake holds, and to the value an event holds."""
