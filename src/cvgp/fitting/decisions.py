"""Everything that a fit decides, as one value that can be printed, stored and pinned."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.files import Fields
from cvgp.fitting.compare import Scores


@dataclass(frozen=True)
class Choice:
    """One decision of a fit."""

    taken: str
    value: Any = None  # what the fit needs to repeat the decision, as a JSON value
    reason: str = ""
    candidates: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # mean log density, error
    seconds: float = 0.0

    @staticmethod
    def scored(scores: Mapping[str, Scores | None]) -> dict[str, tuple[float, float]]:
        """Candidates with their scores."""
        return {name: (found.density, found.error) for name, found in scores.items() if found is not None}


def to_value(record: Any) -> dict[str, Any]:
    """A named tuple of texts, numbers and arrays as a JSON value."""
    return {name: part.tolist() if isinstance(part, np.ndarray) else part for name, part in record._asdict().items()}


def from_value(kind: Any, value: Mapping[str, Any]) -> Any:
    """The named tuple of a kind that :func:`to_value` was given; a list is an array like the default of its field."""
    dtypes = {name: getattr(default, "dtype", np.float64) for name, default in kind._field_defaults.items()}
    arrays = {name: np.asarray(part, dtypes[name]) for name, part in value.items() if isinstance(part, list)}
    return kind(**{**value, **arrays})


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

    dates: Choice | None = None
    outliers: Choice | None = None
    target_transform: Choice | None = None
    input_warp: Choice | None = None
    kernel: Choice | None = None
    n_coreset: Choice | None = None
    n_neighbors: Choice | None = None
    solver: Choice | None = None
    noise: Choice | None = None
    audit: Choice | None = None
    seed: int | None = None

    def __iter__(self) -> Iterator[tuple[str, Choice]]:
        for member in fields(self):
            choice = getattr(self, member.name)
            if isinstance(choice, Choice):
                yield member.name, choice

    def with_choice(self, name: str, choice: Choice) -> "Decisions":
        """A copy with one more choice."""
        values: dict[str, Any] = {name: choice}
        return replace(self, **values)

    def revised(self, name: str, **changes: Any) -> "Decisions":
        """A copy in which parts of one choice have changed."""
        return self.with_choice(name, replace(getattr(self, name), **changes))

    def __str__(self) -> str:
        rows = [("choice", "taken", "seconds", "why")]
        for name, choice in self:
            scores = ", ".join(
                f"{label} {mean:.3f} ± {error:.3f}" for label, (mean, error) in choice.candidates.items()
            )
            why = [choice.reason, f"nats per unseen row: {scores}" if scores else ""]
            rows.append((name, choice.taken, f"{choice.seconds:.1f}", "; ".join(filter(None, why))))
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        lines = ([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]] for row in rows)
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"seed": self.seed} | {name: asdict(choice) for name, choice in self}

    @classmethod
    def from_json(cls, stored: Any) -> "Decisions":
        """From JSON values, which may come from an untrusted file."""
        taken = Fields(stored, "decisions")
        seed = taken.optional("seed", taken.integer) if "seed" in taken.values else None
        names = [member.name for member in fields(cls) if member.name != "seed" and member.name in taken.values]
        found: dict[str, Any] = {name: taken.part(name, _choice_from_json) for name in names}
        taken.close()
        return cls(seed=seed, **found)

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


def _choice_from_json(stored: Fields) -> Choice:
    candidates = {}
    for label, pair in stored.part("candidates", lambda part: [(name, part.take(name)) for name in list(part.values)]):
        if not isinstance(pair, list) or [type(number) for number in pair] != [float, float]:
            raise FileFormatError(f"{stored.where}.candidates.{label} must be two numbers.")
        candidates[label] = (pair[0], pair[1])
    taken, reason, value = stored.text("taken"), stored.text("reason"), stored.take("value")
    return Choice(taken, value, reason, candidates, stored.number("seconds", finite=False))
