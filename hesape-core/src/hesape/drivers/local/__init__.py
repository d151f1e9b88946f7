"""Drivers that run or drop their jobs here and now, keep nothing and never retry (N5)."""
