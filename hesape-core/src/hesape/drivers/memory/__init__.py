"""The strict reference: a store in one process's memory, gone with it."""
