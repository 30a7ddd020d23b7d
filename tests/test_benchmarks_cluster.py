"""The cost model of many workers."""

from pathlib import Path

import pytest

from benchmarks.runner import run_tasks
from benchmarks.scaling import cluster, cluster_table
from benchmarks.scaling.cluster import CostModel, Network, cost_model
from cvgp.paper.store import Record, Store

PLAN = cluster.full()
NETWORK = Network(latency=1e-4, bytes_per_second=1e9)
MODEL = CostModel(0.001, 1e-6, 0.01, 1e-5, NETWORK, PLAN.size, PLAN.dims)
PROVENANCE = {"date": "2026-01-01T00:00:00", "commit": "c", "processor": "a"}


def measured(workers: int) -> dict[str, float]:
    """What the model says, without a meeting for one worker."""
    found = {f"step_{rows}": MODEL.step(workers, rows, NETWORK) for rows in PLAN.batches}
    found |= {f"pass_{rows}": MODEL.evaluation(workers, rows, NETWORK) for rows in PLAN.rows}
    if workers > 1:
        found |= {f"sum_{size}": NETWORK.all_reduce(2, size) for size in (8, 8192, 2_097_152)}
    return found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    results = Store(tmp_path / "results.jsonl")
    for workers in cluster.WORKERS:
        results.append(Record(cluster.task(PLAN, workers).key, measured(workers), PROVENANCE))
    return results


def test_the_model_is_found_from_its_own_times(store: Store) -> None:
    found = cost_model(PLAN, store)
    assert found is not None
    assert found.step_fixed == pytest.approx(0.001)
    assert found.step_row == pytest.approx(1e-6)
    assert found.pass_fixed == pytest.approx(0.01)
    assert found.pass_row == pytest.approx(1e-5)
    assert found.here.latency == pytest.approx(1e-4)
    assert found.here.bytes_per_second == pytest.approx(1e9)


def test_a_sum_over_two_workers_by_hand() -> None:
    # Two messages there and back, and every byte once in each direction.
    assert NETWORK.all_reduce(2, 1e6) == pytest.approx(2e-4 + 1e-3)


def test_one_worker_meets_nobody() -> None:
    assert MODEL.step(1, 512, NETWORK) == pytest.approx(0.001 + 512e-6)
    assert MODEL.evaluation(1, 1000, NETWORK) == pytest.approx(0.02)


def test_bytes_of_the_gradient_are_those_of_the_parameters() -> None:
    from benchmarks.peers.work_cluster import make_model

    model = make_model(PLAN.size, PLAN.dims)
    # The loss travels with them.
    assert MODEL.gradient_bytes == 8 * (1 + sum(p.numel() for p in model.parameters() if p.requires_grad))


def test_tables_say_what_the_model_says(store: Store) -> None:
    text = cluster_table.report(PLAN, store)
    assert (
        "one core takes 1.00 ms and 1.00 µs per row for a step, 10.0 ms and 10.00 µs per row for an evaluation" in text
    )
    assert "1e+10 rows" in text
    # Ten million rows of each of a thousand workers.
    assert "takes 100 s" in text


def test_without_results_there_is_no_table(tmp_path: Path) -> None:
    assert cluster_table.report(PLAN, Store(tmp_path / "none.jsonl")) == "No results yet."


@pytest.mark.slow
def test_workers_are_measured(tmp_path: Path) -> None:
    results = Store(tmp_path / "results.jsonl")
    run_tasks(cluster.tasks(cluster.quick()), results, 1, warm_up=False)
    model = cost_model(cluster.quick(), results)
    assert model is not None
    assert model.evaluation(1, 512, model.here) > 0.0  # its parts are noise at this size
