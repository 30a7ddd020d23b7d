"""Models as arrays and a JSON description, and back.

A description names GPyTorch classes and transforms from fixed tables. No name from a file is imported or evaluated, and
no memory is allocated beyond the size of the file's arrays.
"""

from cvgp.files.modules import pack_part, unpack_part
from cvgp.files.packed_model import pack_model, unpack_model

__all__ = ["pack_model", "pack_part", "unpack_model", "unpack_part"]
