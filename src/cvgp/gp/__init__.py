"""The mathematics: tensors in, tensors out. No files, tables, optimisers or processes."""
