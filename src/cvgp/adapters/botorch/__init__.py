"""The coreset posterior at home in BoTorch: a model that conditions and fantasises in closed form.

Needs the extra `botorch`.
"""

from cvgp.extras import optional_packages

with optional_packages():
    import cvgp.adapters.botorch.pathwise  # noqa: F401 - registers with BoTorch's samplers
    from cvgp.adapters.botorch.coreset_model import CVGPModel

__all__ = ["CVGPModel"]
