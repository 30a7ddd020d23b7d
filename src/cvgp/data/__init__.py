"""Rows on their way to the model: records, sources of batches, scaling and transforms."""
