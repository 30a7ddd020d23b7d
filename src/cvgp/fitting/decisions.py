"""Everything that a fit decides, as one value that can be printed, stored and pinned."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.fitting.compare import Scores


@dataclass(frozen=True)
class Choice:
    """One decision of a fit."""

    taken: str
    """What was decided, in words."""
    value: Any = None
    """What the fit needs to repeat the decision, as a JSON value."""
    reason: str = ""
    candidates: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean log density of unseen rows of each candidate in nats, and its standard error."""
    seconds: float = 0.0

    @staticmethod
    def scored(scores: Mapping[str, Scores | None]) -> dict[str, tuple[float, float]]:
        """Candidates with their scores."""
        return {name: (found.density, found.error) for name, found in scores.items() if found is not None}


@dataclass(frozen=True)
class Decisions:
    """What a fit has decided, choice by choice.

    ``print(model.decisions_)`` shows a table. ``fit(..., decisions=model.decisions_)`` makes the same choices again
    without a search, and any part of it can be pinned: ``decisions={"noise": model.decisions_.noise}``.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = CVGPRegressor(random_state=0).fit(X, np.sin(X[:, 0]))
    >>> model.decisions_.n_neighbors.taken
    'none'
    """

    outliers: Choice | None = None
    target_transform: Choice | None = None
    input_warp: Choice | None = None
    kernel: Choice | None = None
    n_coreset: Choice | None = None
    n_neighbors: Choice | None = None
    solver: Choice | None = None
    noise: Choice | None = None
    seed: int | None = None
    """The seed of the random numbers that the fit has drawn."""

    def __iter__(self) -> Iterator[tuple[str, Choice]]:
        """The choices that were made, with their names."""
        for member in fields(self):
            choice = getattr(self, member.name)
            if isinstance(choice, Choice):
                yield member.name, choice

    def with_choice(self, name: str, choice: Choice) -> "Decisions":
        """A copy with one more choice."""
        values: dict[str, Any] = {name: choice}
        return replace(self, **values)

    def __str__(self) -> str:
        rows = [("choice", "taken", "seconds", "why")]
        for name, choice in self:
            scores = ", ".join(
                f"{label} {mean:.3f} ± {error:.3f}" for label, (mean, error) in choice.candidates.items()
            )
            why = "; ".join(
                part for part in (choice.reason, f"nats per unseen row: {scores}" if scores else "") if part
            )
            rows.append((name, choice.taken, f"{choice.seconds:.1f}", why))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join(
            "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip()
            for row in rows
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        found: dict[str, Any] = {"seed": self.seed}
        for name, choice in self:
            candidates = {label: list(scores) for label, scores in choice.candidates.items()}
            found[name] = {
                "taken": choice.taken,
                "value": choice.value,
                "reason": choice.reason,
                "candidates": candidates,
                "seconds": choice.seconds,
            }
        return found

    @classmethod
    def from_json(cls, stored: Any) -> "Decisions":
        """From JSON values, which may come from an untrusted file."""
        if not isinstance(stored, dict) or not set(stored) <= {member.name for member in fields(cls)}:
            raise FileFormatError("The decisions must be an object with the known choices.")
        found: dict[str, Any] = {}
        for name, choice in stored.items():
            if name == "seed":
                if choice is not None and (isinstance(choice, bool) or not isinstance(choice, int)):
                    raise FileFormatError("The seed of the decisions must be a whole number.")
                found[name] = choice
                continue
            found[name] = _choice_from_json(name, choice)
        return cls(**found)

    @classmethod
    def pinned(cls, given: Any) -> "Decisions":
        """The decisions that a user gives to `fit`: all of them, a mapping of some, or None."""
        if given is None:
            return cls()
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise InvalidTypeError(
                f"decisions must be those of a fitted model, or a dict with some of them; got {type(given).__name__}."
            )
        known = {member.name for member in fields(cls)}
        for name, choice in given.items():
            if name not in known:
                raise InvalidInputError(f"decisions has no choice {name!r}; known are {', '.join(sorted(known))}.")
            if name != "seed" and not isinstance(choice, Choice):
                raise InvalidTypeError(
                    f"decisions[{name!r}] must be a choice of a fitted model, such as model.decisions_.{name}; got "
                    f"{choice!r}. To set a value of your own, use the parameter of the estimator."
                )
        return cls(**given)


def _choice_from_json(name: str, stored: Any) -> Choice:
    members = {"taken", "value", "reason", "candidates", "seconds"}
    if not isinstance(stored, dict) or set(stored) != members:
        raise FileFormatError(f"The decision {name!r} must have {', '.join(sorted(members))}, and nothing else.")
    texts_are_texts = isinstance(stored["taken"], str) and isinstance(stored["reason"], str)
    seconds, candidates = stored["seconds"], stored["candidates"]
    if not texts_are_texts or isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise FileFormatError(f"The decision {name!r} is damaged.")
    if not isinstance(candidates, dict) or not all(_is_pair(scores) for scores in candidates.values()):
        raise FileFormatError(f"The candidates of the decision {name!r} are damaged.")
    scores = {str(label): (float(mean), float(error)) for label, (mean, error) in candidates.items()}
    return Choice(stored["taken"], stored["value"], stored["reason"], scores, float(seconds))


def _is_pair(scores: Any) -> bool:
    return (
        isinstance(scores, list)
        and len(scores) == 2
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in scores)
        and not any(math.isnan(value) for value in scores)
    )
