"""The studies of the paper, one module for each idea."""
