"""Everything that talks to a PostgreSQL server, and the only package that imports psycopg."""
