"""The presets, which say how long to train and on how many rows."""

from dataclasses import dataclass

from cvgp.errors import InvalidInputError
from cvgp.paper.baselines import EXACT_ROWS, Recipe
from cvgp.paper.splits import train_rows


@dataclass(frozen=True)
class Preset:
    """How long to train, and on how many rows.

    Parameters
    ----------
    recipe
        The same for every system, but for the learning rate.
    learning_rates
        Of which each system takes the one with the best validation log-likelihood on the first fold, for each data set
        and size. One rate means no choice.
    rows
        Most rows of a data set that are used, a random choice of them; None for all.
    time_limit
        Seconds for one task.
    """

    name: str
    recipe: Recipe
    learning_rates: tuple[float, ...]
    rows: int | None
    time_limit: float


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "paper",
            Recipe(
                steps=None,
                epochs=100_000,
                learning_rate=1e-3,
                schedule="constant",
                patience=3000,
                full_batch="adam",
                beta_transform="softplus",
            ),
            learning_rates=(1e-3,),
            rows=None,
            time_limit=7 * 86400.0,
        ),
        Preset("fair", Recipe(steps=2000), learning_rates=(0.01, 0.03, 0.1), rows=None, time_limit=1800.0),
        Preset(
            "smoke", Recipe(steps=12, batch_size=64, evaluations=6), learning_rates=(0.03,), rows=120, time_limit=60.0
        ),
    )
}


def find_preset(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise InvalidInputError(f"Unknown preset {name!r}. Choose from {', '.join(PRESETS)}.")
    return PRESETS[name]


def exact_is_possible(dataset: str, rows: int | None = None) -> bool:
    """Whether an exact GP can be computed on a fold."""
    return train_rows(dataset, rows) <= EXACT_ROWS
