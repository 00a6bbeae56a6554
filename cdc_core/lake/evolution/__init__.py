"""What is known of a lake table's schema versions, and the way from one to another."""
