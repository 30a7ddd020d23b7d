"""Models as arrays and a JSON description, and back.

The description names GPyTorch classes out of the tables below, and nothing else: no class or function is looked up by
a name that a file gives, and no size is allocated that the file's arrays do not have. Names of arrays are those of
torch's `state_dict`. Parameters come back to the bit, with their constraints and whether they are frozen.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Literal, cast

import torch
from gpytorch.kernels import RFFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from numpy.typing import NDArray
from torch import nn

from cvgp.coreset import Coreset
from cvgp.data.untrusted import Arrays, Members
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.kernels import square_matrix
from cvgp.model import CVGP
from cvgp.process import prior_mean
