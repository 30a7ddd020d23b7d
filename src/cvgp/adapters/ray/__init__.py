"""Fits on a Ray cluster: one fit by many workers, or one model per shard, merged. Needs the extra `ray`."""

from cvgp.adapters.ray.connection import connect
from cvgp.adapters.ray.shards import fit_and_merge
from cvgp.adapters.ray.train import fit

__all__ = ["connect", "fit", "fit_and_merge"]
