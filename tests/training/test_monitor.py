import math
from collections.abc import Sequence
from itertools import pairwise

import pytest

from cvgp.errors import CVGPWarning
from cvgp.optim.stopping import Progress, Status
from cvgp.training.event_lines import EventLines, print_line
from cvgp.training.monitor import HISTORY_ROWS, FitEvent, Watch
from tests.parallel.groups import ThreadGroup, run_in_threads
from tests.training.problems import collect


class Clock:
    """A time that moves only when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def step(watch: Watch, iteration: int, event: str = "") -> Status | None:
    return watch.monitor(Progress(iteration, -2.5, 0.1, event))


def test_history_holds_a_row_an_iteration() -> None:
    watch = Watch()
    watch.begin("adam", 3)
    for iteration in (1, 2, 3):
        step(watch, iteration)
    assert [row["iteration"] for row in watch.history] == [1, 2, 3]


def test_bound_is_the_negative_of_what_is_minimised() -> None:
    watch = Watch()
    step(watch, 1)
    assert watch.history[0]["bound"] == 2.5


def test_rows_name_their_phase() -> None:
    watch = Watch()
    for phase in ("start", "adam"):
        watch.begin(phase, 1)
        step(watch, 1)
    assert [row["phase"] for row in watch.history] == ["start", "adam"]


def test_long_phase_leaves_a_bounded_history() -> None:
    watch = Watch()
    watch.begin("adam", 5 * HISTORY_ROWS)
    for iteration in range(1, 5 * HISTORY_ROWS + 1):
        step(watch, iteration)
    assert len(watch.history) == HISTORY_ROWS


def test_last_iteration_is_always_in_the_history() -> None:
    watch = Watch()
    watch.begin("adam", 5 * HISTORY_ROWS + 3)
    step(watch, 5 * HISTORY_ROWS + 3)
    assert len(watch.history) == 1


def test_event_is_in_the_history_whatever_its_iteration() -> None:
    watch = Watch()
    watch.begin("adam", 5 * HISTORY_ROWS)
    with pytest.warns(CVGPWarning):
        step(watch, 7, "learning rate halved")
    assert watch.history[0]["event"] == "learning rate halved"


def test_event_is_a_warning_that_says_where() -> None:
    watch = Watch()
    watch.begin("adam", 100)
    with pytest.warns(CVGPWarning, match="adam, iteration 7: learning rate halved"):
        step(watch, 7, "learning rate halved")


def test_callbacks_are_told_of_every_iteration() -> None:
    events: list[FitEvent] = []
    watch = Watch(callbacks=[collect(events)])
    watch.begin("lbfgs", 5 * HISTORY_ROWS)
    for iteration in range(1, 11):
        step(watch, iteration)
    assert [(event.phase, event.iteration) for event in events] == [("lbfgs", i) for i in range(1, 11)]


def test_true_from_a_callback_stops() -> None:
    assert step(Watch(callbacks=[lambda event: True]), 1) is Status.INTERRUPTED


@pytest.mark.parametrize("answer", [None, False, 1, "yes"])
def test_only_true_stops(answer: object) -> None:
    assert step(Watch(callbacks=[lambda event: answer]), 1) is None


def test_stop_holds_for_the_phases_that_follow() -> None:
    watch = Watch(callbacks=[lambda event: event.phase == "start"])
    watch.begin("start", 10)
    step(watch, 1)
    watch.begin("adam", 10)
    assert step(watch, 1) is Status.INTERRUPTED


def test_every_callback_is_called_though_one_stops() -> None:
    events: list[FitEvent] = []
    step(Watch(callbacks=[lambda event: True, collect(events)]), 1)
    assert len(events) == 1


def test_time_limit_stops(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    clock.now += 9.9
    before = step(watch, 1)
    clock.now += 0.2
    assert (before, step(watch, 2)) == (None, Status.TIME_LIMIT)


def test_time_used_is_a_fraction_of_the_limit(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    clock.now += 4.0
    assert watch.time_used() == pytest.approx(0.4)


def test_without_limit_no_time_is_used(clock: Clock) -> None:
    watch = Watch(clock=clock)
    clock.now += 1e9
    assert watch.time_used() == 0.0


def test_resumed_watch_counts_the_time_before(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    clock.now += 3.0  # spent on what came before the solver, and again in the resumed run
    watch.resume([], 6.0)
    clock.now += 1.0
    assert watch.seconds == pytest.approx(7.0)


def test_resumed_watch_goes_on_with_the_history() -> None:
    watch = Watch()
    watch.resume([{"iteration": 1}], 0.0)
    step(watch, 2)
    assert [row["iteration"] for row in watch.history] == [1, 2]


def test_new_phase_has_no_validation_score() -> None:
    watch = Watch()
    watch.validation_rmse = 0.5
    watch.begin("adam", 1)
    step(watch, 1)
    assert watch.history[0]["validation_rmse"] is None


def event(iteration: int, text: str = "", validation: float | None = None) -> FitEvent:
    return FitEvent("adam", iteration, 1000, -0.25, 3.0, math.nan, validation, text)


def test_printed_line_names_phase_iteration_and_bound(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(event(50))
    assert capsys.readouterr().out.split() == ["adam", "50/1000", "bound", "-0.2500", "3.0", "s"]


def test_printed_line_shows_the_validation_score(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(event(50, validation=0.125))
    assert "validation RMSE 0.1250" in capsys.readouterr().out


def lines_of(events: Sequence[FitEvent]) -> list[tuple[str, int]]:
    shown: list[tuple[str, int]] = []
    lines = EventLines(lambda event: shown.append((event.phase, event.iteration)))
    for one in events:
        lines(one)
    lines.finish()
    return shown


def phase_of(name: str, count: int, begin: float, step: float, max_iter: int = 10**6) -> list[FitEvent]:
    return [FitEvent(name, i, max_iter, 0.0, begin + step * i, 0.1, None, "") for i in range(1, count + 1)]


def test_each_phase_of_a_start_has_one_line() -> None:
    starts = [*phase_of("start x1", 40, 0.0, 0.01, 40), *phase_of("start x4", 25, 0.4, 0.01, 40)]
    assert lines_of(starts) == [("start x1", 40), ("start x4", 25)]


def test_two_phases_of_one_name_have_a_line_each() -> None:
    assert lines_of(phase_of("adam", 7, 0.0, 0.01) + phase_of("adam", 5, 0.1, 0.01)) == [("adam", 7), ("adam", 5)]


@pytest.mark.parametrize("step", [0.01, 0.3, 5.0])
def test_lines_come_regularly_however_long_the_phase_may_be(step: float) -> None:
    events = phase_of("lbfgs", 400, 0.0, step)
    shown = [events[iteration - 1].seconds for _, iteration in lines_of(events)]
    gaps = [later - earlier for earlier, later in pairwise([0.0, *shown])]
    assert all(gap <= max(2.0, 0.1 * at) + step + 1e-9 for gap, at in zip(gaps, shown, strict=True))
    assert all(gap >= max(2.0, 0.1 * at) - 1e-9 for gap, at in zip(gaps[:-1], shown[:-1], strict=True))


def test_event_is_shown_whenever_it_comes() -> None:
    shown: list[FitEvent] = []
    EventLines(shown.append)(event(7, "restart"))
    assert [one.event for one in shown] == ["restart"]


def test_the_first_process_decides_when_all_stop() -> None:
    def work(group: ThreadGroup) -> Status | None:
        watch = Watch(callbacks=[lambda event: group.rank == 0], group=group)
        return watch.monitor(Progress(1, 0.0, 0.1))

    assert run_in_threads(3, work) == [Status.INTERRUPTED] * 3


def test_a_stop_that_another_process_asks_for_is_not_heard() -> None:
    def work(group: ThreadGroup) -> Status | None:
        watch = Watch(callbacks=[lambda event: group.rank == 1], group=group)
        return watch.monitor(Progress(1, 0.0, 0.1))

    assert run_in_threads(3, work) == [None] * 3


def test_the_time_is_that_of_the_first_process() -> None:
    def work(group: ThreadGroup) -> float:
        watch = Watch(10.0, group=group)
        watch.resume([], 5.0 * group.rank)
        watch.meet()
        return watch.time_used()

    first, *others = run_in_threads(3, work)
    assert others == [first] * 2
    assert first < 0.5


def test_an_interrupt_of_the_first_process_is_one_of_all() -> None:
    def interrupt(event: FitEvent) -> None:
        raise KeyboardInterrupt

    def work(group: ThreadGroup) -> str:
        watch = Watch(callbacks=[interrupt] if group.rank == 0 else [], group=group)
        with pytest.raises(KeyboardInterrupt):
            watch.monitor(Progress(1, 0.0, 0.1))
        return "interrupted"

    assert run_in_threads(3, work) == ["interrupted"] * 3


def test_a_phase_with_a_share_of_the_limit_stops_there(clock: Clock) -> None:
    watch = Watch(10.0, clock=clock)
    clock.now += 3.0
    with watch.until(0.2):
        assert step(watch, 1) is Status.TIME_LIMIT
    assert step(watch, 2) is None


def test_time_that_is_kept_back_counts_as_spent(clock: Clock) -> None:
    watch = Watch(10.0, clock=clock)
    clock.now += 7.0
    assert step(watch, 1) is None
    watch.keep_back(4.0)
    assert step(watch, 2) is Status.TIME_LIMIT
    assert watch.time_used() > 1.0
    watch.keep_back(20.0)
    assert watch.time_used() == 1.0


def test_a_shortened_limit_is_whole_again_afterwards(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    clock.now += 4.0
    with watch.shortened(2.0):
        assert watch.time_used() == 0.5
    assert watch.time_used() == 0.4
    unlimited = Watch(clock=clock)
    with unlimited.shortened(2.0):
        assert unlimited.max_time is None


def test_what_is_said_of_neighbours_is_no_warning() -> None:
    watch = Watch()
    watch.begin("neighbours", 1)
    step(watch, 1, "20 neighbours")
    assert watch.history[-1]["event"] == "20 neighbours"


def test_a_step_that_would_end_after_the_limit_is_not_begun(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    watch.begin("lbfgs", 10)
    clock.now += 4.0
    before = step(watch, 1)
    clock.now += 4.0
    assert (before, step(watch, 2)) == (None, Status.TIME_LIMIT)


def test_a_stage_has_its_share_from_its_own_beginning(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    clock.now += 5.0
    with watch.stage(0.2):
        assert watch.left == pytest.approx(2.0)
        clock.now += 1.9
        assert watch.has_time
        clock.now += 0.2
        assert not watch.has_time
    assert watch.has_time
    assert watch.left == pytest.approx(2.9)


def test_a_stage_does_not_outlast_the_one_around_it(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    with watch.stage(0.1), watch.stage(0.5):
        assert watch.left == pytest.approx(1.0)


def test_without_a_limit_there_is_always_time(clock: Clock) -> None:
    watch = Watch(clock=clock)
    clock.now += 1e9
    with watch.stage(0.1):
        assert watch.has_time
        assert watch.left == math.inf


def test_a_choice_sees_fewer_rows_where_the_limit_is_short() -> None:
    seen = [Watch(limit).some_of(500) for limit in (None, 60.0, 10.0, 2.5, 1e-9)]
    assert seen == [500, 500, 500, 250, 1]


def test_searches_share_what_those_before_them_left(clock: Clock) -> None:
    watch = Watch(max_time=10.0, clock=clock)
    clock.now += 1.0
    limits = []
    for own in watch.shares(0.3, 3):
        limits.append(own.max_time)
        clock.now += 0.5
    assert limits == pytest.approx([1.0, 1.25, 2.0])


def test_the_pace_is_what_work_took_over_what_it_should_take() -> None:
    watch = Watch()
    assert watch.pace == 1.0
    watch.measure(1.0, 3.0)
    watch.measure(1.0, 1.0)
    assert watch.pace == 2.0
