"""TabPFN 1: a transformer that was trained on generated tables, and predicts the classes of a small one at once."""

import typing
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

from experiments.peers.protocol import Job, run

ENSEMBLE = 32
"""Orders of columns and classes to average over, as in its paper."""


def classes(job: Job) -> Mapping[str, float | str]:
    """Probabilities of classes, by weights that `settings` has the path of."""
    torch.set_num_threads(job.settings["threads"])
    # The package takes this name from a module of torch that no longer has it.
    torch.nn.modules.transformer.Optional = typing.Optional  # type: ignore[attr-defined]
    from tabpfn import TabPFNClassifier

    # Its folder models_diff has the weights, which torch loads without any code.
    folder = Path(job.settings["weights"]).parents[1]
    model = TabPFNClassifier(base_path=folder, N_ensemble_configurations=ENSEMBLE, seed=0)
    job.restart()
    model.fit(job.x, job.y.astype(int))
    job.record_arrays(lambda x: {"probabilities": model.predict_proba(x)})
    return {"precision": "float32"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"classes": classes}, {"tabpfn": "0.1.11"})
