"""Tables, types and names."""
