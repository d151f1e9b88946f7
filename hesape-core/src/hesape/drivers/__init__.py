"""The drivers that ship with the core. They register as everybody's do: by entry point, loaded when they are used."""
