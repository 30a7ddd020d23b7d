"""The coreset posterior in GPyTorch: a variational strategy that takes the place of its own ones."""

from cvgp.adapters.gpytorch.coreset_distribution import CoresetVariationalDistribution
from cvgp.adapters.gpytorch.coreset_strategy import CoresetVariationalStrategy
from cvgp.adapters.gpytorch.fitted_coreset import CoresetGP

__all__ = ["CoresetGP", "CoresetVariationalDistribution", "CoresetVariationalStrategy"]
