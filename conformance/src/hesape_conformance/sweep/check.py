"""The checks of the sweep."""
