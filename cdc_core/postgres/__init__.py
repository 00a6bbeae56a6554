"""Access to PostgreSQL servers; the only package that imports psycopg."""
