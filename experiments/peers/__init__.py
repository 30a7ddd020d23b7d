"""Other libraries' methods, each set up as well as we set up our own."""
