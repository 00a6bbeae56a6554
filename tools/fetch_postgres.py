"""Downloads the PostgreSQL servers that only tests use, once. Run by setup."""

from tests.support.released import VERSIONS, fetch, is_offered

if __name__ == "__main__":
    for flavour in VERSIONS if is_offered() else ():
        print(f"PostgreSQL {VERSIONS[flavour]}: {fetch(flavour)}")
