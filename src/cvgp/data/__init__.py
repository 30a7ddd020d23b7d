"""Data on their way to the model: tables, their encoding as numbers, scaling, and sources of batches.

The modules are imported one by one, so that a program with arrays does not pay for tables.
"""
