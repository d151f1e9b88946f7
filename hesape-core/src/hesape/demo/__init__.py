"""What `hesape demo` runs: text files counted for two tenants, with everything that can go wrong on the way."""
