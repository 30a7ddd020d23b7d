"""Why this price? The effect of each column on one prediction, with its uncertainty, and the rows that it is made of.

Run it with ``python examples/explain.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cvgp import CVGPRegressor, plots


def flats(rows: int) -> pd.DataFrame:
    """Rents of flats: an old kitchen costs more where the flat is large, and the last column does nothing."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "area": rng.gamma(9.0, 8.0, rows).round(),
            "district": rng.choice(["harbour", "hills", "old town"], rows, p=[0.5, 0.2, 0.3]),
            "kitchen": rng.choice(["new", "old"], rows),
            "listed": pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 500, rows), "D"),
            "floor": rng.integers(0, 6, rows),
            "number": rng.integers(1, 100, rows),
        }
    )
    rent = 150.0 + 9.0 * table["area"] + table["district"].map({"harbour": 0.0, "hills": 220.0, "old town": 90.0})
    rent -= 1.5 * table["area"] * (table["kitchen"] == "old") - 12.0 * table["floor"]
    return table.assign(rent=rent * np.exp(0.06 * rng.standard_normal(rows)))


def main(folder: Path) -> None:
    """Explain one rent, in words and in a picture."""
    table = flats(700)
    model = CVGPRegressor(random_state=0).fit(table[1:], "rent")
    found = model.explain(table[:1])
    print(found)
    print(f"\nbaseline and effects: {found.baseline + found.effects.sum():.6f}")
    print(f"prediction:           {model.predict(table[:1])[0]:.6f}")

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    plots.plot_explanation(found, figure.add_subplot())
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "explain.png", dpi=100)
    print(f"picture: {folder / 'explain.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
