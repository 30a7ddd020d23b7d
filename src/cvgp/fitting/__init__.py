"""One fit: what is decided, where it starts, and how it is solved."""
