"""A job queue whose store is a plug and whose every push is authorised."""
