"""The connector file: read, checked, explained."""
