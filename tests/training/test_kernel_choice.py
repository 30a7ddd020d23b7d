import numpy as np
import pytest
import torch
from gpytorch.means import ZeroMean

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.kernel_names import name_of_kernel
from cvgp.training.candidates import Start
from cvgp.training.densities import is_clearly_better
from cvgp.training.kernel_choice import choose_kernel
from cvgp.training.kernel_search import START_FACTORS, search_start
from cvgp.training.monitor import Watch
from cvgp.training.start import AUTO_KERNELS, alternative_kernels, starting_kernel
from tests.parallel.groups import ThreadGroup, run_in_threads


def standardised(x: np.ndarray, y: np.ndarray) -> MemorySource:
    return MemorySource(torch.tensor((x - x.mean(0)) / x.std(0)), torch.tensor((y - y.mean()) / y.std()))


def smooth(num_rows: int = 300) -> MemorySource:
    """What is not linear in Friedman's function."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(num_rows, 3))
    f = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    return standardised(x, f + 0.5 * rng.normal(size=num_rows))


def search(source: MemorySource, watch: Watch) -> Start:
    D = source.data.x.shape[1]
    return search_start(
        starting_kernel("auto", D, ard=True),
        ZeroMean(),
        source,
        np.random.default_rng(0),
        watch,
        is_exact=lambda by_rows: True,
        alternatives=alternative_kernels("auto", D, ard=True),
    )


def test_a_smooth_function_gets_the_smooth_kernel_and_the_history_says_so() -> None:
    watch = Watch()
    found = search(smooth(), watch)
    assert name_of_kernel(found.kernel) == "rbf"
    phases = {row["phase"] for row in watch.history}
    assert phases == {f"start x{f:g}" for f in START_FACTORS} | {f"start {k}" for k in (*AUTO_KERNELS, "kernel")}
    (event,) = [row["event"] for row in watch.history if row["event"]]
    assert event.startswith(f"kernel rbf: {found.density:.3f} nats")


def test_noise_keeps_the_default() -> None:
    rng = np.random.default_rng(1)
    found = search(standardised(rng.normal(size=(80, 2)), rng.normal(size=80)), Watch())
    assert name_of_kernel(found.kernel) == "matern32"


def test_without_time_the_alternatives_are_not_tried() -> None:
    watch = Watch(max_time=1e-6)
    assert name_of_kernel(search(smooth(60), watch).kernel) == "matern32"
    assert {row["phase"] for row in watch.history} == {"start x1", "start kernel"}


ROWS = Rows(torch.zeros(4, 1), torch.zeros(4), None, None)
DEFAULT = starting_kernel(None, 1, ard=True)
ALTERNATIVES = alternative_kernels("auto", 1, ard=True)


def by_table(gains: dict[str, float]) -> Start:
    """The choice where each alternative gains a number of nats per row over the default, with a spread of .1."""

    def learn(start: Start, phase: str) -> Start:
        densities = gains.get(phase.removeprefix("start "), -1.0) + torch.tensor([-0.2, 0.2, -0.2, 0.2])
        return start._replace(density=densities.mean().item(), densities=densities)

    default = Start(DEFAULT, ZeroMean(), 0.1, 0.0, torch.zeros(4))
    return choose_kernel(default, ALTERNATIVES, learn, ROWS, Watch())[0]


@pytest.mark.parametrize(
    ("gains", "chosen"),
    [
        ({"rbf": 0.05}, "matern32"),  # within the standard error of .1
        ({"rbf": 0.15, "matern52": 0.2}, "matern52"),
        ({"rbf": 0.3, "matern52+linear": 0.2}, "rbf"),
        ({"matern32+linear": 0.15}, "matern32"),
        ({"matern32+linear": 0.25}, "matern32+linear"),
        ({}, "matern32"),
    ],
)
def test_ties_go_to_the_simpler_kernel(gains: dict[str, float], chosen: str) -> None:
    assert name_of_kernel(by_table(gains).kernel) == chosen


@pytest.mark.parametrize(("gain", "chosen"), [(1.9, "matern32"), (2.1, "matern32+matern12")])
def test_a_rough_part_has_to_gain_more_nats_than_it_has_parameters(gain: float, chosen: str) -> None:
    (rough,) = alternative_kernels(None, 1, ard=True, may_be_rough=True)
    default = Start(DEFAULT, ZeroMean(), 0.1, 0.0, torch.zeros(4), evidence=-10.0)
    learned = choose_kernel(default, [rough], lambda start, phase: start._replace(evidence=gain - 10.0), ROWS, Watch())[
        0
    ]
    assert name_of_kernel(learned.kernel) == chosen


@pytest.mark.parametrize(("density", "chosen"), [(-0.04, "matern32+matern12"), (-0.06, "matern32")])
def test_a_rough_part_that_unseen_rows_speak_against_is_refused(density: float, chosen: str) -> None:
    (rough,) = alternative_kernels(None, 1, ard=True, may_be_rough=True)
    default = Start(DEFAULT, ZeroMean(), 0.1, 0.0, torch.zeros(4), evidence=-10.0)

    def learn(start: Start, phase: str) -> Start:
        return start._replace(evidence=90.0, density=density, densities=torch.full((4,), density))

    assert name_of_kernel(choose_kernel(default, [rough], learn, ROWS, Watch())[0].kernel) == chosen


def test_a_kernel_that_was_named_has_no_alternatives() -> None:
    assert alternative_kernels("matern32", 1, ard=True, may_be_rough=True) == []
    assert alternative_kernels(None, 1, ard=True) == []


def test_rows_count_by_their_weights_in_the_comparison() -> None:
    better = torch.tensor([1.0, 1.1, -3.0, -3.0])
    assert not is_clearly_better(better, torch.zeros(4), ROWS, errors=1.0)
    weights = torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert is_clearly_better(better, torch.zeros(4), ROWS._replace(sample_weight=weights), errors=1.0)


def test_processes_choose_the_kernel_of_the_first() -> None:
    def work(group: ThreadGroup) -> str:
        def learn(start: Start, phase: str) -> Start:
            wins = phase == ("start rbf" if group.rank == 0 else "start matern52")
            return start._replace(density=float(wins), densities=torch.full((4,), float(wins)))

        default = Start(DEFAULT, ZeroMean(), 0.1, 0.0, torch.zeros(4))
        return name_of_kernel(choose_kernel(default, ALTERNATIVES, learn, ROWS, Watch(group=group))[0].kernel)

    assert run_in_threads(2, work) == ["rbf", "rbf"]


def test_alternatives_go_on_from_what_the_default_learned() -> None:
    seen: dict[str, list[float]] = {}

    def learn(start: Start, phase: str) -> Start:
        term = start.kernel.kernels[0] if "+" in phase else start.kernel
        seen[phase] = [term.base_kernel.lengthscale.item(), term.outputscale.item(), start.noise]
        return start

    learned = starting_kernel(None, 1, ard=True)
    learned.base_kernel.lengthscale, learned.outputscale = 0.37, 2.5
    choose_kernel(Start(learned, ZeroMean(), 0.1, 0.0, torch.zeros(4)), ALTERNATIVES, learn, ROWS, Watch())
    assert len(seen) == len(AUTO_KERNELS)
    assert all(values == pytest.approx([0.37, 2.5, 0.1]) for values in seen.values())
