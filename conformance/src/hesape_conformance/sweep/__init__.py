"""The fault sweep: every operation, its connection cut at every request and every reply."""
