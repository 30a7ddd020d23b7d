"""The mathematics: tensors in, tensors out. No files, tables, optimizers or processes."""
