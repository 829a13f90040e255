import pytest

from paircaps.training.recipe import Schedule
from paircaps.training.schedule import rate


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
