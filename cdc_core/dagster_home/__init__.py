"""The settings of a Dagster instance. Here they are links to the files at the top level; a wheel has them as files."""
