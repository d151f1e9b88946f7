"""`failover`: several stores behind one name; each push goes to the first that takes it."""
