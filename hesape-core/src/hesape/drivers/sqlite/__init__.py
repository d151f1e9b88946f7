"""The default store: one SQLite file, durable, shared by threads and processes of one machine."""
