"""What a user does first, with an installed wheel and nothing of this repository: run it outside of the clone."""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import cvgp


def command(*arguments: str) -> str:
    """The output of the installed command `cvgp`."""
    program = Path(sys.executable).parent / "cvgp"
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Fit, predict, save and load in Python, and the same by commands."""
    if not Path(cvgp.__file__).is_relative_to(sys.prefix):
        sys.exit(f"cvgp was imported from {cvgp.__file__}, and not from the environment {sys.prefix}")
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 150)
    table = pd.DataFrame({"x": x, "kind": rng.choice(["a", "b"], 150), "y": np.sin(x) + 0.1 * rng.normal(size=150)})
    with tempfile.TemporaryDirectory() as folder:
        model_file, data, out = (str(Path(folder) / name) for name in ("model.cvgp", "data.csv", "out.csv"))
        table.to_csv(data, index=False)
        model = cvgp.CVGPRegressor(random_state=0).fit(table, "y")
        model.save(model_file)
        again = cvgp.load(model_file)
        np.testing.assert_array_equal(again.predict(table), model.predict(table))
        if (score := model.score(table, table["y"])) < 0.9:
            sys.exit(f"the model explains {score:.2f} of the variance of a sine, and should explain .9")
        if (version := command("--version").strip()) != cvgp.__version__:
            sys.exit(f"`cvgp --version` says {version}, and the package {cvgp.__version__}")
        command("fit", data, "--target", "y", "--out", model_file, "--overwrite", "--max-iter", "5", "--quiet")
        command("predict", model_file, data, "--out", out)
        if len(pd.read_csv(out)) != len(table):
            sys.exit("`cvgp predict` lost rows")
    print(f"cvgp {cvgp.__version__} on Python {sys.version.split()[0]}: installed, fitted, saved, loaded, predicted")


if __name__ == "__main__":
    main()
