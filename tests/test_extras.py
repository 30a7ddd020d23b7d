"""The base install: arrays are fitted and predicted, and the rest says in one line what to install."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cvgp.errors import MissingDependencyError
from cvgp.extras import EXTRAS, optional_packages

ROOT = Path(__file__).parent.parent
OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

WITHOUT_EXTRAS = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {set(EXTRAS)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
FITTED = """
import numpy as np, cvgp
X = np.random.default_rng(0).standard_normal((60, 2))
model = cvgp.CVGPRegressor(8, max_iter=2, random_state=0).fit(X, X[:, 0])
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_EXTRAS + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_arrays_need_no_extra(tmp_path: Path) -> None:
    path = str(tmp_path / "model.cvgp")
    done = run(
        f"{FITTED}\nmodel.save({path!r})\nloaded = cvgp.load({path!r})\nloaded.predict(X, return_std=True)\n"
        "cvgp.merge([model, cvgp.CVGPRegressor(8, max_iter=2).fit(X[1:], X[1:, 0])])\nmodel.prune()\nimport cvgp.plots"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("use", "extra"),
    [
        ("model.coreset_.to_frame()", "tables"),
        ("cvgp.CVGPRegressor().fit('table.csv', 'y')", "tables"),
        ("import cvgp.plots; cvgp.plots.plot_training(model)", "plot"),
        ("model.to_botorch()", "botorch"),
        ("import cvgp.adapters.botorch", "botorch"),
    ],
)
def test_what_needs_an_extra_says_how_to_get_it(use: str, extra: str) -> None:
    last_line = run(f"{FITTED}\n{use}").stderr.splitlines()[-1]
    assert last_line.startswith("cvgp.errors.MissingDependencyError")
    assert last_line.endswith(f"pip install 'cvgp[{extra}]'")


def test_the_command_says_in_one_line_how_to_get_it() -> None:
    done = run("from cvgp.__main__ import main\nmain()")
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.partition("install it with: ")[2]) == (1, "pip install 'cvgp[cli]'")


@pytest.mark.parametrize(("package", "extra"), EXTRAS.items())
def test_the_extra_brings_the_package(package: str, extra: str) -> None:
    assert any(requirement.startswith(f"{package}>=") for requirement in OPTIONAL[extra])


def test_another_missing_module_is_no_matter_of_extras() -> None:
    with pytest.raises(ModuleNotFoundError) as caught, optional_packages():
        import no_such_module  # noqa: F401
    assert not isinstance(caught.value, MissingDependencyError)
