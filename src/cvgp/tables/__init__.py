"""One reader for every table in files, small or large."""
