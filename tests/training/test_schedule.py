import pytest

from paircaps.training.recipe import Schedule
from paircaps.training.schedule import rate, side_at, stretched


def rates(schedule, steps=20, per_epoch=5):
    return [rate(schedule, step, steps, per_epoch) for step in range(steps)]


def test_constant():
    assert rates(Schedule()) == [1.0] * 20


def test_drops_come_after_their_epochs():
    assert rates(Schedule("drops", drops=(1, 3), factor=0.1)) == pytest.approx([1] * 5 + [0.1] * 10 + [0.01] * 5)


def test_the_papers_drops():
    schedule = Schedule("drops", drops=(81, 122), factor=0.1)
    found = [rate(schedule, epoch * 351, 163 * 351, 351) for epoch in (0, 80, 81, 121, 122, 162)]
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    assert rate(schedule, 81 * 351 - 1, 163 * 351, 351) == 1


def test_halving():
    assert rates(Schedule("halving", every=2, factor=0.5)) == [1.0] * 10 + [0.5] * 10


def test_cosine_ends_near_final_and_passes_the_middle():
    found = rates(Schedule("cosine", final=0.2))
    assert found[0] == 1
    assert found[10] == pytest.approx(0.6)
    assert found == sorted(found, reverse=True)
    assert 0.2 < found[-1] < 0.21


def test_warm_up_rises_straight():
    found = rates(Schedule("cosine", warm_up=1))
    assert found[:6] == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])


def test_one_cycle_rises_then_falls():
    found = rates(Schedule("one-cycle", warm_up=0.25))
    assert found[0] == pytest.approx(1 / 25)
    assert found[5] == 1
    assert found[:6] == sorted(found[:6])
    assert found[5:] == sorted(found[5:], reverse=True)
    assert found[-1] < 0.02


def test_linear_falls_straight_to_final():
    assert rates(Schedule("linear")) == pytest.approx([1 - step / 20 for step in range(20)])
    assert rates(Schedule("linear", final=0.2)) == pytest.approx([1 - 0.8 * step / 20 for step in range(20)])


def test_linear_falls_after_its_warm_up():
    rise, fall = [(step + 1) / 6 for step in range(5)], [1 - step / 15 for step in range(15)]
    assert rates(Schedule("linear", warm_up=1)) == pytest.approx(rise + fall)


def test_a_trapezoid_is_flat_and_falls_in_its_last_share():
    assert rates(Schedule("trapezoid", cool_down=0.4)) == pytest.approx([1] * 12 + [1 - step / 8 for step in range(8)])


def test_a_trapezoid_rises_stays_and_falls_to_final():
    found = rates(Schedule("trapezoid", warm_up=0.8, cool_down=0.25, final=0.1))
    assert found == pytest.approx([1 / 5, 2 / 5, 3 / 5, 4 / 5] + [1] * 11 + [1 - 0.9 * step / 5 for step in range(5)])


def test_a_trapezoid_may_fall_from_the_first_step_or_never():
    assert rates(Schedule("trapezoid", cool_down=1.0)) == rates(Schedule("linear"))
    assert rates(Schedule("trapezoid", cool_down=0.0)) == [1.0] * 20


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule("linear", warm_up=2, final=0.1),
        Schedule("trapezoid", warm_up=2, cool_down=0.3, final=0.1),
        Schedule("cosine", warm_up=1),
        Schedule("one-cycle", warm_up=0.25),
        Schedule("drops", drops=(1.0, 3.0)),
        Schedule("halving", every=1.0, factor=0.5),
    ],
    ids=lambda schedule: schedule.name,
)
@pytest.mark.parametrize("factor", [0.5, 3])
def test_a_stretched_schedule_has_its_shape_over_another_length(schedule, factor):
    steps = 400
    other = stretched(schedule, factor)
    for share in (0.01, 0.1, 0.26, 0.49, 0.55, 0.74, 0.8, 0.99):
        short = rate(schedule, round(share * steps), steps, 100)
        long = rate(other, round(share * steps * factor), int(steps * factor), 100)
        assert long == pytest.approx(short, abs=0.02)


@pytest.mark.parametrize("name", ["linear", "trapezoid"])
def test_stretching_changes_epochs_and_no_shares(name):
    schedule = Schedule(name, warm_up=2.0, cool_down=0.3, final=0.1)
    assert stretched(schedule, 2.5) == Schedule(name, warm_up=5.0, cool_down=0.3, final=0.1)


def test_sizes_have_equal_shares_of_the_run():
    sides = [side_at((16, 24, 32), step, 9) for step in range(9)]
    assert sides == [16] * 3 + [24] * 3 + [32] * 3
    assert [side_at((16, 32), step, 3) for step in range(3)] == [16, 16, 32]
    assert side_at((), 5, 9) is None
