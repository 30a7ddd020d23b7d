import importlib.metadata
import importlib.resources
import subprocess
import sys
from pathlib import Path

import pytest

import cvgp


@pytest.mark.parametrize("name", [name for name in cvgp.__all__ if not name.startswith("_")])
def test_a_lazy_name_is_the_object_of_its_home_module(name: str) -> None:
    value = getattr(cvgp, name)
    assert getattr(sys.modules[value.__module__], name) is value


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, cvgp; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_fit_a_file_and_a_prediction_do_without_sympy(tmp_path: Path) -> None:
    # torch loads it, for longer than a small fit takes, where it is asked to compare shapes
    code = f"""
import sys, numpy as np, cvgp
from tests.flat_options import make_regressor
x = np.random.default_rng(0).standard_normal((60, 2))
for settings in ({{}}, {{"n_coreset": 10, "solver": "lbfgs"}}, {{"n_coreset": 10, "solver": "adam"}}):
    model = make_regressor(max_iter=3, **settings).fit(x, x[:, 0])
    model.save({str(tmp_path / "model.cvgp")!r})
    cvgp.load({str(tmp_path / "model.cvgp")!r}).predict(x, return_std=True)
sys.exit("sympy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_that_of_the_installed_package() -> None:
    assert cvgp.__version__ == importlib.metadata.version("cvgp")


def test_the_citation_is_of_this_version() -> None:
    lines = (Path(__file__).parent.parent / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {cvgp.__version__}" in lines
