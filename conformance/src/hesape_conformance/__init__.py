"""The suite that decides what a Hesape driver is."""
