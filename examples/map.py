"""A map of predictions and of their uncertainty, from stations on both sides of the date line.

Run it with ``python examples/map.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cvgp import CVGPRegressor

WEST, EAST = 155.0, 210.0  # degrees east of Greenwich; 210 is 150 degrees west


def truth(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """A temperature field that is smooth across the date line."""
    return 24.0 + 5.0 * np.cos(np.radians(6.0 * lat)) + 3.0 * np.sin(np.radians(9.0 * lon)) * np.cos(np.radians(lat))


def main(folder: Path) -> None:
    """Fit stations, and draw the predicted field with its standard deviation."""
    rng = np.random.default_rng(2)
    lat, lon = rng.uniform(-35.0, 15.0, 400), rng.uniform(WEST, EAST, 400)
    is_land = (lon < 172.0) | (np.hypot(lat + 18.0, lon - 181.0) < 8.0) | (rng.random(400) < 0.08)
    lat, lon = lat[is_land], lon[is_land]
    stations = pd.DataFrame({"lat": lat, "lon": (lon + 180.0) % 360.0 - 180.0})  # from -180 to 180, as most tables have
    stations["temperature"] = truth(lat, lon) + 0.5 * rng.normal(size=len(lat))
    model = CVGPRegressor(random_state=0).fit(stations, "temperature", geo=("lat", "lon"))

    north, east = np.linspace(-35.0, 15.0, 60), np.linspace(WEST, EAST, 90)
    grid = pd.DataFrame({"lat": np.repeat(north, 90), "lon": np.tile(east, 60)})
    mean, sd = (values.reshape(60, 90) for values in model.predict(grid, return_std=True))
    error = float(np.sqrt(np.mean((mean - truth(*np.meshgrid(north, east, indexing="ij"))) ** 2)))
    here, there = model.predict(pd.DataFrame({"lat": [-18.0, -18.0], "lon": [179.99, -179.99]}))
    print(f"{len(stations)} stations; lengthscale {model.lengthscales_[0]:.0f} km, RMSE of the map {error:.2f} degrees")
    print(f"2 km apart, on either side of the date line: {here:.3f} and {there:.3f} degrees")

    figure = Figure(figsize=(10, 3.9), layout="constrained")
    panels = zip(figure.subplots(1, 2, sharey=True), (mean, sd), ("RdYlBu_r", "viridis"), strict=True)
    for ax, values, colors in panels:
        field = ax.pcolormesh(east, north, values, cmap=colors, shading="gouraud")
        ax.plot(lon, lat, ".", color="black", ms=3)
        ax.axvline(180.0, color="black", lw=0.8, ls="--")
        ax.set_xticks([160, 170, 180, 190, 200, 210], ["160°E", "170°E", "180°", "170°W", "160°W", "150°W"])
        figure.colorbar(field, ax=ax, label="mean, °C" if values is mean else "standard deviation, °C")
    figure.axes[0].set(ylabel="latitude", title="prediction")
    figure.axes[1].set(title="uncertainty: large where no station is near")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "map.png", dpi=100)
    print(f"picture: {folder / 'map.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
