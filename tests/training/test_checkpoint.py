import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from cvgp.errors import FactorisationError, FileAccessError, FileFormatError, InvalidInputError
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.optim.adam import SNAPSHOT_EVERY, AdamState
from cvgp.training import checkpoint as checkpoint_module
from cvgp.training import journal as journal_module
from cvgp.training.checkpoint import JOURNAL_FILE, STATE_FILE, Checkpoint, fingerprint, open_checkpoint
from cvgp.training.journal import Beginning
from cvgp.training.maximise import stretch_length
from cvgp.training.monitor import FitEvent, Watch
from cvgp.training.plan import Settings
from tests.training.problems import make_model, make_source

SIZE = 3
START = np.zeros(SIZE)
IDENTITY = fingerprint([torch.ones(2)], "a fit")
Evaluation = tuple[float, np.ndarray]
EXTRA = ({"best": torch.arange(3.0)}, {"score": 0.5})
EVENT = FitEvent("adam", 1, 100, -2.0, 0.1, 0.01, None, "")


def make_checkpoint(folder: Path | None, identity: str = IDENTITY) -> Checkpoint:
    return Checkpoint(folder, identity, Watch(clock=lambda: 0.0))


def square(point: np.ndarray) -> Callable[[], Evaluation]:
    return lambda: (float(point @ point), 2.0 * point)


def unwanted() -> Evaluation:
    pytest.fail("evaluated what was recorded")


POINTS = [np.arange(SIZE) + 0.1 * i for i in range(4)]


def record(folder: Path, points: list[np.ndarray]) -> None:
    journal = make_checkpoint(folder).journal(START).evaluate
    for point in points:
        journal(point, square(point))


def make_state(seed: int = 0) -> AdamState:
    generator = torch.Generator().manual_seed(seed)
    parameters = [torch.randn(shape, generator=generator, requires_grad=True) for shape in ((2, 3), ())]
    return AdamState(parameters, 0.1)


def trained_state() -> AdamState:
    state = make_state()
    for _ in range(3):
        state.gradient.zero_()
        sum(p.square().sum() for p in state.parameters).backward()
        state.update(0.1)
    state.step, state.smoothed, state.recoveries, state.learning_rate = SNAPSHOT_EVERY, 0.25, 2, 0.05
    return state


def test_fingerprint_of_the_same_is_the_same() -> None:
    assert fingerprint([torch.ones(2), None], "fact", 1) == fingerprint([torch.ones(2), None], "fact", 1)


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [([torch.ones(3)], ("a fit",)), ([torch.tensor([1.0, 1.0 + 1e-7])], ("a fit",)), ([torch.ones(2)], ("another",))],
    ids=["shape", "value", "fact"],
)
def test_fingerprint_differs_by(tensors: list[torch.Tensor], facts: tuple[str, ...]) -> None:
    assert fingerprint(tensors, *facts) != IDENTITY


def test_journal_replays_what_it_recorded(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    journal = make_checkpoint(tmp_path).journal(START).evaluate
    for point in POINTS:
        value, gradient = journal(point, unwanted)
        assert value == float(point @ point)
        np.testing.assert_array_equal(gradient, 2.0 * point)


def test_journal_goes_on_after_what_it_replayed(tmp_path: Path) -> None:
    record(tmp_path, POINTS[:2])
    record(tmp_path, POINTS)
    journal = make_checkpoint(tmp_path).journal(START).evaluate
    assert [journal(point, unwanted)[0] for point in POINTS] == [float(point @ point) for point in POINTS]


def test_another_point_is_evaluated(tmp_path: Path) -> None:
    record(tmp_path, POINTS[:1])
    other = np.full(SIZE, 7.0)
    assert make_checkpoint(tmp_path).journal(START).evaluate(other, square(other))[0] == float(other @ other)


@pytest.mark.parametrize("cut", [1, 20, 51])
def test_record_that_was_cut_short_is_evaluated_again(tmp_path: Path, cut: int) -> None:
    record(tmp_path, POINTS[:2])
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(path.read_bytes()[:-cut])
    journal = make_checkpoint(tmp_path).journal(START).evaluate
    journal(POINTS[0], unwanted)
    assert journal(POINTS[1], square(POINTS[1]))[0] == float(POINTS[1] @ POINTS[1])


def test_journal_is_whole_again_after_a_cut(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    path = tmp_path / JOURNAL_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    record(tmp_path, POINTS)
    assert path.read_bytes() == whole


def test_journal_cut_within_its_header_starts_afresh(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    path = tmp_path / JOURNAL_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:10])
    record(tmp_path, POINTS)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("position", [0, 8, 40, 51])
def test_damaged_record_and_all_after_it_are_evaluated_again(tmp_path: Path, position: int) -> None:
    record(tmp_path, POINTS)
    path = tmp_path / JOURNAL_FILE
    whole = bytearray(path.read_bytes())
    header = len(IDENTITY) + 16
    start = header + (len(whole) - header) // len(POINTS)
    path.write_bytes(whole[: start + position] + bytes([whole[start + position] ^ 1]) + whole[start + position + 1 :])
    evaluated: list[int] = []
    journal = make_checkpoint(tmp_path).journal(START).evaluate
    for i, point in enumerate(POINTS):
        journal(point, lambda i=i, point=point: evaluated.append(i) or square(point)())
    assert (evaluated, path.read_bytes()) == ([1, 2, 3], bytes(whole))


def test_evaluation_that_failed_does_not_spoil_the_replay(tmp_path: Path) -> None:
    def fail() -> Evaluation:
        raise FactorisationError("not positive definite")

    for _ in range(2):
        journal = make_checkpoint(tmp_path).journal(START).evaluate
        journal(POINTS[0], square(POINTS[0]))
        with pytest.raises(FactorisationError):
            journal(POINTS[1], fail)
        journal(POINTS[2], square(POINTS[2]))
    journal = make_checkpoint(tmp_path).journal(START).evaluate
    journal(POINTS[0], unwanted)
    with pytest.raises(FactorisationError):
        journal(POINTS[1], fail)
    assert journal(POINTS[2], unwanted)[0] == float(POINTS[2] @ POINTS[2])


def test_journal_of_another_course_makes_way_for_the_new_one(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    others = [point + 7.0 for point in POINTS[:2]]
    record(tmp_path, others)
    journal = make_checkpoint(tmp_path).journal(START)
    for point in others:
        assert journal.is_replaying
        journal.evaluate(point, unwanted)
    assert not journal.is_replaying


def test_journal_is_read_one_record_at_a_time(tmp_path: Path) -> None:
    size, count = 10_000, 50
    for _ in range(2):  # once to record, once to replay
        journal = make_checkpoint(tmp_path).journal(np.zeros(size))
        tracemalloc.start()
        for i in range(count):
            point = np.full(size, float(i))
            journal.evaluate(point, square(point))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (tmp_path / JOURNAL_FILE).stat().st_size / 5
    assert (tmp_path / JOURNAL_FILE).stat().st_size < 1.1 * count * size * 8  # no more than the gradients


def test_journal_of_a_search_from_elsewhere_makes_way(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    assert make_checkpoint(tmp_path).journal(START).is_replaying
    assert not make_checkpoint(tmp_path).journal(START + 1e-9).is_replaying
    assert not make_checkpoint(tmp_path).journal(START).is_replaying


def test_journal_that_begins_again_holds_the_beginning_alone(tmp_path: Path) -> None:
    journal = make_checkpoint(tmp_path).journal(START)
    assert journal.beginning is None
    for point in POINTS:
        journal.evaluate(point, square(point))
    before = (tmp_path / JOURNAL_FILE).stat().st_size
    journal.begin_again(Beginning(POINTS[1], 4))
    assert (tmp_path / JOURNAL_FILE).stat().st_size < before
    journal.evaluate(POINTS[2], square(POINTS[2]))
    again = make_checkpoint(tmp_path).journal(START)
    assert again.beginning is not None
    np.testing.assert_array_equal(again.beginning.point, POINTS[1])
    assert again.beginning.num_before == 4
    assert again.evaluate(POINTS[2], unwanted)[0] == float(POINTS[2] @ POINTS[2])


@pytest.mark.parametrize(("size", "evaluations"), [(10, 3_200_000), (40_100, 798), (10**7, 200)])
def test_stretches_are_as_long_as_the_journal_may_be_large(size: int, evaluations: int) -> None:
    assert stretch_length(size) == evaluations


def test_clock_goes_on_from_where_a_replayed_evaluation_was_made(tmp_path: Path) -> None:
    times = iter(range(100))
    journal = Checkpoint(tmp_path, IDENTITY, Watch(clock=lambda: next(times))).journal(START)
    for point in POINTS:
        journal.evaluate(point, square(point))
    watch = Watch(clock=lambda: 0.0)
    journal = Checkpoint(tmp_path, IDENTITY, watch).journal(START)
    seen = []
    for point in POINTS:
        journal.evaluate(point, unwanted)
        seen.append(watch.seconds)
    assert seen == [1.0, 2.0, 3.0, 4.0]


def test_replayed_gradient_may_be_changed(tmp_path: Path) -> None:
    record(tmp_path, POINTS[:1])
    _, gradient = make_checkpoint(tmp_path).journal(START).evaluate(POINTS[0], unwanted)
    gradient += 1.0  # SciPy writes into what it is given
    np.testing.assert_array_equal(gradient, 2.0 * POINTS[0] + 1.0)


def test_journal_of_another_fit_is_refused_with_advice(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    with pytest.raises(InvalidInputError, match="Choose another folder, or remove this one"):
        make_checkpoint(tmp_path, fingerprint([], "another"))


def test_refused_journal_stays_as_it_is(tmp_path: Path) -> None:
    record(tmp_path, POINTS)
    before = (tmp_path / JOURNAL_FILE).read_bytes()
    with pytest.raises(InvalidInputError):
        make_checkpoint(tmp_path, fingerprint([], "another"))
    assert (tmp_path / JOURNAL_FILE).read_bytes() == before


def test_journal_of_garbage_is_called_damaged(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_bytes(b"\xff" * 200)
    with pytest.raises(FileFormatError, match="damaged"):
        make_checkpoint(tmp_path).journal(START)


def test_journal_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    monkeypatch.setattr(journal_module, "open_own_file", lambda path, mode: full.open(mode))
    with pytest.raises(FileAccessError, match="free space"):
        make_checkpoint(tmp_path).journal(START)


@pytest.mark.parametrize("name", [JOURNAL_FILE, STATE_FILE])
def test_nothing_is_written_through_a_link_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").write_text("13 bytes long")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / name).symlink_to(tmp_path / "precious")
    with pytest.raises(FileAccessError, match="symbolic link"):
        make_checkpoint(tmp_path / "folder")
    assert (tmp_path / "precious").read_text() == "13 bytes long"


@pytest.mark.parametrize("name", [JOURNAL_FILE, STATE_FILE])
def test_a_pipe_in_the_folder_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(FileAccessError, match="a pipe"):
        make_checkpoint(tmp_path)


def test_a_link_that_replaces_the_journal_is_not_written_through(tmp_path: Path) -> None:
    stored = make_checkpoint(tmp_path).journal(START)
    (tmp_path / "precious").write_bytes((tmp_path / JOURNAL_FILE).read_bytes())
    (tmp_path / JOURNAL_FILE).unlink()
    (tmp_path / JOURNAL_FILE).symlink_to(tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    with pytest.raises(FileAccessError, match="symbolic links"):
        stored.evaluate(POINTS[0], lambda: (1.0, np.ones_like(START)))
    assert (tmp_path / "precious").read_bytes() == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("value", np.nan), ("value", np.inf), ("seconds", np.inf), ("seconds", -1.0), ("gradient", np.nan)],
)
def test_forged_record_is_refused_by_the_name_of_its_field(tmp_path: Path, field: str, value: float) -> None:
    record(tmp_path, POINTS[:1])
    path = tmp_path / JOURNAL_FILE
    stored = make_checkpoint(tmp_path).journal(START)
    content = path.read_bytes()
    forged = np.frombuffer(content[-stored._record.itemsize :], stored._record).copy()
    forged[field] = value
    forged["sum"] = journal_module._checksum(forged.tobytes())
    path.write_bytes(content[: -len(forged.tobytes())] + forged.tobytes())
    with pytest.raises(FileFormatError, match=f"the {field} of a record"):
        make_checkpoint(tmp_path).journal(START).evaluate(POINTS[0], unwanted)


def test_evaluation_that_is_not_finite_leaves_no_record(tmp_path: Path) -> None:
    stored = make_checkpoint(tmp_path).journal(START)
    before = (tmp_path / JOURNAL_FILE).read_bytes()
    value, _ = stored.evaluate(POINTS[0], lambda: (np.nan, np.ones_like(START)))
    assert np.isnan(value)
    assert (tmp_path / JOURNAL_FILE).read_bytes() == before


def test_folder_in_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).mkdir()
    with pytest.raises(FileAccessError, match=JOURNAL_FILE):
        make_checkpoint(tmp_path).journal(START)


def test_folder_is_made(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileAccessError, match="Could not make the folder"):
        make_checkpoint(tmp_path / "file")


def test_without_a_folder_there_is_no_checkpoint() -> None:
    source = make_source(5)
    with open_checkpoint(None, make_model(source, size=3), source, Settings(), Watch()) as checkpoint:
        assert checkpoint is None


def test_empty_folder_holds_nothing_to_load(tmp_path: Path) -> None:
    assert make_checkpoint(tmp_path).load_adam(make_state(), EXTRA) is None


def save(folder: Path, state: AdamState) -> None:
    checkpoint = make_checkpoint(folder)
    checkpoint.watch.history = [EVENT._asdict()]
    checkpoint.save_adam(state, EXTRA, now=True)


def test_loaded_state_has_the_stored_parameters(tmp_path: Path) -> None:
    stored, loaded = trained_state(), make_state(seed=1)
    save(tmp_path, stored)
    make_checkpoint(tmp_path).load_adam(loaded, EXTRA)
    assert all(torch.equal(p, q) for p, q in zip(loaded.parameters, stored.parameters, strict=True))


def test_loaded_state_has_the_stored_moments(tmp_path: Path) -> None:
    stored, loaded = trained_state(), make_state(seed=1)
    save(tmp_path, stored)
    make_checkpoint(tmp_path).load_adam(loaded, EXTRA)
    assert torch.equal(loaded.mean, stored.mean)
    assert torch.equal(loaded.square, stored.square)
    assert loaded.updates == stored.updates == 3


def test_loaded_state_has_the_stored_counts(tmp_path: Path) -> None:
    loaded = make_state(seed=1)
    save(tmp_path, trained_state())
    make_checkpoint(tmp_path).load_adam(loaded, EXTRA)
    counts = (loaded.step, loaded.smoothed, loaded.recoveries, loaded.learning_rate)
    assert counts == (SNAPSHOT_EVERY, 0.25, 2, 0.05)


def test_state_before_the_first_step_is_loaded(tmp_path: Path) -> None:
    stored, loaded = make_state(), make_state(seed=1)
    save(tmp_path, stored)
    make_checkpoint(tmp_path).load_adam(loaded, EXTRA)
    assert torch.equal(loaded.parameters[0], stored.parameters[0])


def test_loading_brings_back_what_the_solver_added(tmp_path: Path) -> None:
    save(tmp_path, trained_state())
    tensors, numbers = make_checkpoint(tmp_path).load_adam(make_state(), EXTRA)
    assert tensors["best"].tolist() == [0.0, 1.0, 2.0]
    assert numbers == {"score": 0.5}


def test_loading_brings_back_the_history(tmp_path: Path) -> None:
    save(tmp_path, trained_state())
    checkpoint = make_checkpoint(tmp_path)
    checkpoint.load_adam(make_state(), EXTRA)
    assert checkpoint.watch.history == [EVENT._asdict()]


def test_state_of_another_fit_is_refused_with_advice(tmp_path: Path) -> None:
    save(tmp_path, trained_state())
    with pytest.raises(InvalidInputError, match="Choose another folder, or remove this one"):
        make_checkpoint(tmp_path, fingerprint([], "another")).load_adam(make_state(), EXTRA)


@pytest.mark.parametrize("damage", ["cut short", "garbage", "empty"])
def test_damaged_state_is_refused(tmp_path: Path, damage: str) -> None:
    save(tmp_path, trained_state())
    path = tmp_path / STATE_FILE
    content = {"cut short": path.read_bytes()[:-7], "garbage": b"\x00\xff" * 500, "empty": b""}[damage]
    path.write_bytes(content)
    with pytest.raises(FileFormatError):
        make_checkpoint(tmp_path).load_adam(make_state(), EXTRA)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("updates", -1),
        ("updates", 10**400),
        ("step", 1.5),
        ("smoothed", "low"),
        ("learning_rate", None),
        ("learning_rate", float("nan")),
        ("seconds", []),
        ("history", {}),
        ("history", [1]),
        ("history", [{"phase": "adam"}]),
        ("history", [EVENT._asdict() | {"bound": "low"}]),
        ("extra", {}),
        ("extra", {"score": "low"}),
        ("more", 1),
    ],
)
def test_forged_state_is_refused(tmp_path: Path, name: str, value: object) -> None:
    save(tmp_path, trained_state())
    tensors, metadata = read_tensors(tmp_path / STATE_FILE)
    write_tensors(tmp_path / STATE_FILE, tensors, metadata | {name: value})
    with pytest.raises(FileFormatError, match=r"is damaged.*Remove it to start afresh"):
        make_checkpoint(tmp_path).load_adam(make_state(), EXTRA)


@pytest.mark.parametrize(
    ("name", "array"),
    [("vector", np.zeros(2)), ("mean", np.full(7, np.nan)), ("extra.best", np.zeros(4)), ("extra.more", np.zeros(1))],
)
def test_forged_arrays_of_a_state_are_refused(tmp_path: Path, name: str, array: np.ndarray) -> None:
    save(tmp_path, trained_state())
    tensors, metadata = read_tensors(tmp_path / STATE_FILE)
    write_tensors(tmp_path / STATE_FILE, tensors | {name: array.astype(np.float32)}, metadata)
    with pytest.raises(FileFormatError, match="is damaged"):
        make_checkpoint(tmp_path).load_adam(make_state(), EXTRA)


def test_state_is_stored_only_where_the_optimiser_takes_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "SECONDS_BETWEEN", 0.0)
    checkpoint, state = make_checkpoint(tmp_path), trained_state()
    state.step = SNAPSHOT_EVERY + 1
    checkpoint.save_adam(state, ({}, {}))
    assert not (tmp_path / STATE_FILE).exists()


def test_state_is_stored_no_more_than_once_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "SECONDS_BETWEEN", 1e9)
    make_checkpoint(tmp_path).save_adam(trained_state(), ({}, {}))
    assert not (tmp_path / STATE_FILE).exists()


def test_state_is_the_only_file_that_is_left(tmp_path: Path) -> None:
    save(tmp_path, trained_state())
    save(tmp_path, trained_state())
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]
