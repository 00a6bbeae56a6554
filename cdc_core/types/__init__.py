"""Types, one file per family: converters from PostgreSQL's text to the lake's value and to the event's value."""
