"""Everything that talks to a PostgreSQL server, and the only room that imports psycopg."""
