"""cvgp inside other programs: one module per host, imported late."""
