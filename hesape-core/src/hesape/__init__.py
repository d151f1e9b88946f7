"""Hesape: a job queue framework in which the store is a plug."""
