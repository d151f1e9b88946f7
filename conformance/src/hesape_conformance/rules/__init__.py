"""The checks, a module a group of rules."""
