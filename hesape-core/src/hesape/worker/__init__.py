"""The worker: a supervisor, its processes, and inside each a fetcher, slots, a settler and a heartbeat."""
