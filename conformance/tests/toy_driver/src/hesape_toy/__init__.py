"""A Hesape driver that keeps its jobs in one file, a journal of JSON lines."""
