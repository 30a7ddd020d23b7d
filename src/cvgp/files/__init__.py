"""Models as arrays and a JSON description, and back.

A description names GPyTorch classes and transforms from fixed tables. No name from a file is imported or evaluated, and
no memory is allocated beyond the size of the file's arrays.
"""
