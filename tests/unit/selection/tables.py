"""Tables for the tests of selection."""

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableId, TableSchema

INT4 = PgType(23, "int4")
TEXT = PgType(25, "text")
VARCHAR = PgType(1043, "varchar")
BYTEA = PgType(17, "bytea")
NUMERIC = PgType(1700, "numeric")
CITEXT = PgType(16500, "citext", "public")
MOOD = PgType(16501, "mood", "inventory", TypeKind.ENUM, labels=("sad", "happy"))
DTEXT = PgType(16502, "dtext", "inventory", TypeKind.DOMAIN, VARCHAR, 24)
DDTEXT = PgType(16503, "ddtext", "inventory", TypeKind.DOMAIN, DTEXT, -1)


def table_of(
    *columns: Column, key: tuple[str, ...] = (), schema: str = "inventory", name: str = "customers"
) -> TableSchema:
    return TableSchema(TableId(schema, name), 1, columns, primary_key=key)


CUSTOMERS = table_of(
    Column("id", INT4, optional=False),
    Column("first_name", VARCHAR, 259),
    Column("email", TEXT),
    Column("mood", MOOD),
    Column("photo", BYTEA),
    key=("id",),
)
