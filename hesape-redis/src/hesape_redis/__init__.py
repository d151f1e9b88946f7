"""The Redis store of Hesape."""
