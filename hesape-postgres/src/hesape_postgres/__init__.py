"""The PostgreSQL store of Hesape."""
