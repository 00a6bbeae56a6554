"""A round: all tables with changes, merged up to one LSN, and what follows for each of them."""
