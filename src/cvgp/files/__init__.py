"""Models as arrays and a JSON description, and back.

A description names GPyTorch classes and transforms out of fixed tables: nothing is looked up, imported or evaluated by
a name that a file gives, and no size is allocated that the file's arrays do not have.
"""

from cvgp.files.modules import pack_part, unpack_part
from cvgp.files.packed_model import pack_model, unpack_model

__all__ = ["pack_model", "pack_part", "unpack_model", "unpack_part"]
