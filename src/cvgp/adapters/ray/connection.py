"""Joining the cluster, and paths that its workers find too."""

import logging
import os
from typing import Any

from cvgp.errors import MissingDependencyError, WorkerError


def connect(address: str = "local") -> None:
    """Join a Ray cluster, or start one on this machine; a program that has joined one keeps it.

    Parameters
    ----------
    address : str
        The address that ``ray start --head`` printed, ``auto`` for the cluster of this machine, or ``local`` to start
        one.

    Raises
    ------
    MissingDependencyError
        If Ray is not installed.
    WorkerError
        If there is no cluster at the address.

    Examples
    --------
    >>> from cvgp.adapters import ray as on_ray
    >>> on_ray.connect("local")  # doctest: +SKIP
    """
    ray = import_ray()
    if ray.is_initialized():
        return
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise WorkerError(
            f"Could not join a Ray cluster at {address!r} ({reason}). Give the address that `ray start --head` "
            "printed, 'auto' for the cluster of this machine, or 'local' to start one."
        ) from error


def import_ray() -> Any:
    """Ray with the parts that are used here, or an error that says how to get them."""
    try:
        import ray
        import ray.data
        import ray.train
        import ray.train.torch
    except ImportError as error:
        raise MissingDependencyError(
            f"A Ray cluster needs packages that are not here ({error}); install them with: pip install 'cvgp[ray]'"
        ) from error
    return ray


def absolute(place: Any) -> Any:
    """A path, or several, made absolute, since workers run in other folders; an address as it is."""
    if isinstance(place, list | tuple):
        return [absolute(one) for one in place]
    if isinstance(place, str | os.PathLike) and "://" not in os.fspath(place):
        return os.path.abspath(place)
    for scheme in ("sqlite:///", "duckdb:///"):
        if isinstance(place, str) and place.startswith(scheme):
            return scheme + os.path.abspath(place.removeprefix(scheme))
    return place
