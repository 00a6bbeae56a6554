"""The operations of a connector, one a file: what each method of ``Connector`` does."""
